// The versions and hardware of a run, for environment.json and `trainopt env`.
#pragma once

#include "base/json.h"
#include "metrics/gpu_probe.h"

#include <string>

namespace trainopt {

struct ProgramVersion {
  std::string number;
  std::string commit;  ///< 12 digits, with "+dirty" if files were changed; "unknown" if not built in a checkout
};

/// Versions, CPU, memory, GPUs, driver, kernel; no host name. `not_measured`: metrics without a value, with the reason.
Json environment(const ProgramVersion& program, const Reasons& not_measured = {},
                 const std::string& nvml_library = kNvmlLibrary);

}  // namespace trainopt
