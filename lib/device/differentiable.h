// Operations with a gradient of their own: torch.autograd.Function without its header, which costs every file that
// includes it nine seconds of compilation.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKeySet.h>

#include <functional>
#include <vector>

namespace c10 {
class OperatorHandle;
}

namespace trainopt {

struct BackwardCall {
  std::vector<at::Tensor> saved;      ///< what the forward function saved, in its order
  at::Tensor gradient;                ///< the output's gradient, or the first output's of several
  std::vector<at::Tensor> gradients;  ///< each output's gradient, if there are several; undefined where none arrived
  std::vector<bool> needed;           ///< for each input, whether its gradient is wanted
};

/// Computes the output, which must be a new tensor, with gradient recording off. Appends what backward needs to
/// `saved`: inputs, the output or intermediate results; an undefined tensor is allowed.
using ForwardFunction = std::function<at::Tensor(std::vector<at::Tensor>& saved)>;
/// A ForwardFunction with several outputs.
using ForwardsFunction = std::function<std::vector<at::Tensor>(std::vector<at::Tensor>& saved)>;
/// Returns the gradient of each input, in order; undefined if there is none. What it captures must outlive the graph.
using BackwardFunction = std::function<std::vector<at::Tensor>(BackwardCall call)>;

/// The output of `forward`, differentiable with respect to `inputs` (all defined). Double backward is unsupported.
at::Tensor differentiable(const std::vector<at::Tensor>& inputs, const ForwardFunction& forward,
                          BackwardFunction backward);
/// differentiable() with several outputs. If no gradient of any of them is wanted, `backward` does not run.
std::vector<at::Tensor> differentiable_outputs(const std::vector<at::Tensor>& inputs, const ForwardsFunction& forward,
                                               BackwardFunction backward);

/// The gradients of `output` with respect to `inputs`, given its own, `gradient`; undefined for one that it does not
/// depend on. Frees the graph, unless it is kept for another call. May be called during a backward.
std::vector<at::Tensor> gradients_of(const at::Tensor& output, const at::Tensor& gradient,
                                     const std::vector<at::Tensor>& inputs, bool keeps_graph = false);

/// Whether one of these took part in computing `output`, directly or in what it was computed from.
bool has_own_backward(const at::Tensor& output);

// Sees every operation of a thread on its way from autograd to its kernel, as torch_dispatch does in Python.

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
