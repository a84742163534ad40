// Hears of the operations that libtorch runs, through its RecordFunction.
#pragma once

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <memory>

namespace trainopt {

/// Called at the start and end of operations (scope FUNCTION), of labels (USER_SCOPE) and, if wanted, of the nodes of
/// backward (BACKWARD_FUNCTION); from several threads during backward. Operations of the calls themselves are not
/// heard. A call must not throw.
class OperationListener : public c10::DebugInfoBase, public std::enable_shared_from_this<OperationListener> {
 public:
  /// Returns what end() of the same operation receives; null is allowed. Only operations have inputs.
  virtual std::unique_ptr<at::ObserverContext> start(const at::RecordFunction& function) = 0;
  virtual void end(const at::RecordFunction& function, at::ObserverContext* of_start) = 0;
};

/// Listeners of different purposes can be nested; a second one of the same purpose hides the first.
enum class ListensFor { receipts, waits, anomalies };

/// What a listener hears besides operations and labels.
struct AlsoHeard {
  bool outputs = false;         ///< operations' outputs
  bool backward_nodes = false;  ///< nodes without inputs: holding them would make backward copy gradients
};

/// Listens to this thread, and to the backward threads that it starts, during its lifetime.
class Listening {
 public:
  Listening(ListensFor purpose, std::shared_ptr<OperationListener> listener, AlsoHeard also = {});
  ~Listening();
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

 private:
  std::shared_ptr<c10::ThreadLocalDebugInfo> before_, mine_;
  uint64_t operations_, others_;
};

}  // namespace trainopt
