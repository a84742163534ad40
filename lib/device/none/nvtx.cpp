#include "device/trace_range.h"

namespace trainopt {

uint64_t begin_nvtx_range(const char*, TraceRange::Ends) noexcept { return 0; }
void end_nvtx_range(uint64_t, TraceRange::Ends) noexcept {}

}  // namespace trainopt
