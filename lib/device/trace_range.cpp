#include "device/trace_range.h"

#include <ATen/record_function.h>

#include <string_view>

namespace trainopt {

TraceRange::TraceRange(const char* name) : nvtx_(begin_nvtx_range(name)) {
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
  if (!callbacks) return;
  recorded_ = std::make_unique<at::RecordFunction>(std::move(*callbacks));
  recorded_->before(std::string_view(name));
}

TraceRange::~TraceRange() {
  if (nvtx_) end_nvtx_range();
}

}  // namespace trainopt
