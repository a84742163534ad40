#include "train/observe/operation_listener.h"

namespace trainopt {
namespace {

// libtorch's callbacks are plain functions. ThreadLocalDebugInfo passes them our listener, on backward's threads too.
// Its kinds are only names; libtorch itself uses none of these three in this program.
constexpr c10::DebugInfoKind debug_kind_of(ListensFor purpose) {
  switch (purpose) {
    case ListensFor::receipts:
      return c10::DebugInfoKind::PRODUCER_INFO;
    case ListensFor::waits:
      return c10::DebugInfoKind::MOBILE_RUNTIME_INFO;
    default:
      return c10::DebugInfoKind::INFERENCE_CONTEXT;
  }
}

/// Keeps the listener for the end of an operation, which may come on another thread or after the Listening.
struct HeardOperation : at::ObserverContext {
  HeardOperation(std::shared_ptr<OperationListener> l, std::unique_ptr<at::ObserverContext> c)
      : listener(std::move(l)), of_start(std::move(c)) {}
  std::shared_ptr<OperationListener> listener;
  std::unique_ptr<at::ObserverContext> of_start;
};

template <ListensFor kPurpose>
std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  auto* listener = static_cast<OperationListener*>(c10::ThreadLocalDebugInfo::get(debug_kind_of(kPurpose)));
  if (!listener || function.isAsync()) return nullptr;
  const at::DisableRecordFunctionGuard own_operations;
  return std::make_unique<HeardOperation>(listener->shared_from_this(), listener->start(function));
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
  auto* heard = static_cast<HeardOperation*>(context);
  if (!heard) return;
  const at::DisableRecordFunctionGuard own_operations;
  heard->listener->end(function, heard->of_start.get());
}

at::RecordFunctionCallback callback_for(ListensFor purpose) {
  switch (purpose) {
    case ListensFor::receipts:
      return at::RecordFunctionCallback(on_start<ListensFor::receipts>, on_end);
    case ListensFor::waits:
      return at::RecordFunctionCallback(on_start<ListensFor::waits>, on_end);
    default:
      return at::RecordFunctionCallback(on_start<ListensFor::anomalies>, on_end);
  }
}

}  // namespace

Listening::Listening(ListensFor purpose, std::shared_ptr<OperationListener> listener, AlsoHeard also)
    : before_(c10::ThreadLocalDebugInfo::current()) {
  c10::ThreadLocalDebugInfo::_push(debug_kind_of(purpose), std::move(listener));
  mine_ = c10::ThreadLocalDebugInfo::current();
  operations_ = at::addThreadLocalCallback(
      callback_for(purpose).needsInputs(true).needsOutputs(also.outputs).scopes({at::RecordScope::FUNCTION}));
  std::unordered_set<at::RecordScope, std::hash<at::RecordScope>> others{at::RecordScope::USER_SCOPE};
  if (also.backward_nodes) others.insert(at::RecordScope::BACKWARD_FUNCTION);
  others_ = at::addThreadLocalCallback(callback_for(purpose).scopes(others));
}

Listening::~Listening() {
  at::removeCallback(operations_);
  at::removeCallback(others_);
  // An exception may already have restored what was current before.
  if (c10::ThreadLocalDebugInfo::current() == mine_) c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(before_);
}

}  // namespace trainopt
