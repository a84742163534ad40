#include "device/sync_reports.h"

#include <c10/cuda/CUDAFunctions.h>

namespace trainopt {

bool set_sync_warnings(bool on) {
  using c10::cuda::SyncDebugMode;
  auto& state = c10::cuda::warning_state();
  const bool were_on = state.get_sync_debug_mode() != SyncDebugMode::L_DISABLED;
  state.set_sync_debug_mode(on ? SyncDebugMode::L_WARN : SyncDebugMode::L_DISABLED);
  return were_on;
}

}  // namespace trainopt
