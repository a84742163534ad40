// The GPUs of this machine as NVML sees them: also those that CUDA cannot use or this process may not see.
#pragma once

#include "base/json.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt {

struct NvmlLibrary;

/// What decides whether a process can use a GPU. Empty or nullopt: NVML does not tell.
struct SeenGpu {
  int index = 0;  ///< NVML's, as in nvidia-smi
  std::string name, uuid;
  std::string pci_bus_id;  ///< "00000000:1B:00.0"
  std::string lost;        ///< NVML's words if the GPU is lost or needs a reset
  std::optional<bool> mig;
  int mig_instances = 0;
  bool prohibited = false;          ///< compute mode: no process may use it
  bool exclusive = false;           ///< compute mode: one process at a time
  std::vector<unsigned> processes;  ///< that compute on it; only asked for where `exclusive`
};
std::vector<SeenGpu> seen_gpus(const NvmlLibrary& nvml);

/// The GPU's links, neighbours and settings, for `trainopt env`: pcie, nvlink, peers, mig, ecc, persistence_mode,
/// power_limit_w. What NVML does not tell is null, with the reason in `not_known`.
Json gpu_hardware(const NvmlLibrary& nvml, const std::string& pci_bus_id, const std::vector<SeenGpu>& all);

}  // namespace trainopt
