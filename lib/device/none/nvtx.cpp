#include "device/trace_range.h"

namespace trainopt {

bool begin_nvtx_range(const char*) noexcept { return false; }
void end_nvtx_range() noexcept {}

}  // namespace trainopt
