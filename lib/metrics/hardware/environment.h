// The versions and hardware of a run, for environment.json and `trainopt env`.
#pragma once

#include "base/json.h"
#include "metrics/hardware/gpu_trouble.h"

#include <string>

namespace trainopt {

struct ProgramVersion {
  std::string number;
  std::string commit;  ///< 12 digits, with "+dirty" if files were changed; "unknown" if not built in a checkout
};

/// Where environment() looks; tests pass their own.
struct EnvironmentSources {
  std::optional<std::string> visible_devices;  ///< the environment variable CUDA_VISIBLE_DEVICES
  std::string nvml_library = kNvmlLibrary;
  std::filesystem::path sys = "/sys";
};

/// Versions, CPU, memory, GPUs, links, InfiniBand, driver, kernel; no host name. `not_measured`: metrics without a
/// value, with the reason.
Json environment(const ProgramVersion& program, const Reasons& not_measured = {},
                 const EnvironmentSources& sources = {});

/// The ports under /sys/class/infiniband, also those of RoCE adapters: device, port, state, rate_gbit_per_s,
/// link_layer.
Json infiniband_ports(const std::filesystem::path& sys);

}  // namespace trainopt
