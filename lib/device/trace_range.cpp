#include "device/trace_range.h"

#include <ATen/record_function.h>

#include <string_view>

namespace trainopt {

TraceRange::TraceRange(const char* name, Ends ends) : ends_(ends), nvtx_(begin_nvtx_range(name, ends)) {
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
  if (!callbacks) return;
  recorded_ = std::make_unique<at::RecordFunction>(std::move(*callbacks));
  recorded_->before(std::string_view(name));
}

TraceRange::~TraceRange() { end_nvtx_range(nvtx_, ends_); }

}  // namespace trainopt
