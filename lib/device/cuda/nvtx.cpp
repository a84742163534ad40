#include "device/trace_range.h"

#include <nvtx3/nvToolsExt.h>

namespace trainopt {

// Without a tool attached, NVTX's header calls an empty function.
uint64_t begin_nvtx_range(const char* name, TraceRange::Ends ends) noexcept {
  if (ends == TraceRange::Ends::on_any_thread) return nvtxRangeStartA(name);
  nvtxRangePushA(name);
  return 0;
}

void end_nvtx_range(uint64_t range, TraceRange::Ends ends) noexcept {
  if (ends == TraceRange::Ends::on_any_thread)
    nvtxRangeEnd(range);
  else
    nvtxRangePop();
}

}  // namespace trainopt
