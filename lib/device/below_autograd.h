// Sees every operation of a thread on its way from autograd to its kernel, as torch_dispatch does in Python.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKeySet.h>

#include <vector>

namespace c10 {
class OperatorHandle;
}

namespace trainopt {

/// While an object exists, operations of the thread that made it pass through operation(); those within another
/// operation do not. The newest object of a thread comes first. Costs about a microsecond per operation.
class BelowAutograd {
 public:
  BelowAutograd(const BelowAutograd&) = delete;
  BelowAutograd& operator=(const BelowAutograd&) = delete;

 protected:
  using Stack = std::vector<c10::IValue>;

  BelowAutograd();
  virtual ~BelowAutograd();

  /// Replaces the operation's inputs at the end of `stack` by its results, by compute() or otherwise.
  virtual void operation(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack& stack) = 0;
  /// Runs the operation, through the next older object if there is one.
  void compute(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack& stack) const;

 private:
  friend struct Entrance;

  BelowAutograd* outer_;
};

}  // namespace trainopt
