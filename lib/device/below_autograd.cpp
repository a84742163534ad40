#include "device/below_autograd.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <utility>

namespace trainopt {
namespace {

/// Between autograd and the kernels. libtorch reserves it for fake tensors of another project and does not use it.
constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

thread_local BelowAutograd* newest = nullptr;

}  // namespace

BelowAutograd::BelowAutograd() : outer_(std::exchange(newest, this)) {
  if (!outer_) c10::impl::tls_set_dispatch_key_included(kKey, true);
}

BelowAutograd::~BelowAutograd() {
  newest = outer_;
  if (!outer_) c10::impl::tls_set_dispatch_key_included(kKey, false);
}

void BelowAutograd::compute(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack& stack) const {
  if (outer_) return outer_->operation(handle, keys, stack);
  const c10::impl::ExcludeDispatchKeyGuard nested(kKey);
  handle.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), &stack);
}

/// What libtorch calls.
struct Entrance {
  static void enter(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, std::vector<c10::IValue>* stack) {
    newest->operation(handle, keys, *stack);
  }
};

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&Entrance::enter>());
}

}  // namespace trainopt
