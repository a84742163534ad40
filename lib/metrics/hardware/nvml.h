// NVML, loaded at run time because a machine without an NVIDIA GPU has no driver.
#pragma once

#include "base/json.h"

#include <nvml.h>

#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// The NVML functions in use. A null one is missing from this driver.
struct NvmlFunctions {
  decltype(&nvmlInit_v2) init = nullptr;
  decltype(&nvmlShutdown) shutdown = nullptr;
  decltype(&nvmlErrorString) error_string = nullptr;
  decltype(&nvmlSystemGetDriverVersion) driver_version = nullptr;
  decltype(&nvmlDeviceGetHandleByPciBusId_v2) handle_by_pci = nullptr;
  decltype(&nvmlDeviceGetCount_v2) count = nullptr;
  decltype(&nvmlDeviceGetHandleByIndex_v2) handle_by_index = nullptr;
  decltype(&nvmlDeviceGetName) name = nullptr;
  decltype(&nvmlDeviceGetUUID) uuid = nullptr;
  decltype(&nvmlDeviceGetPciInfo_v3) pci_info = nullptr;
  decltype(&nvmlDeviceGetComputeMode) compute_mode = nullptr;
  nvmlReturn_t (*processes)(nvmlDevice_t, unsigned*, nvmlProcessInfo_t*) = nullptr;
  decltype(&nvmlDeviceGetMigMode) mig_mode = nullptr;
  decltype(&nvmlDeviceGetMaxMigDeviceCount) max_mig_devices = nullptr;
  decltype(&nvmlDeviceGetMigDeviceHandleByIndex) mig_device = nullptr;
  decltype(&nvmlDeviceGetCurrPcieLinkGeneration) pcie_generation = nullptr;
  decltype(&nvmlDeviceGetMaxPcieLinkGeneration) max_pcie_generation = nullptr;
  decltype(&nvmlDeviceGetCurrPcieLinkWidth) pcie_width = nullptr;
  decltype(&nvmlDeviceGetMaxPcieLinkWidth) max_pcie_width = nullptr;
  decltype(&nvmlDeviceGetNvLinkState) nvlink_state = nullptr;
  decltype(&nvmlDeviceGetNvLinkVersion) nvlink_version = nullptr;
  decltype(&nvmlDeviceGetNvLinkRemotePciInfo_v2) nvlink_remote = nullptr;
  decltype(&nvmlDeviceGetNvLinkRemoteDeviceType) nvlink_remote_type = nullptr;
  decltype(&nvmlDeviceGetFieldValues) field_values = nullptr;
  decltype(&nvmlDeviceGetTopologyCommonAncestor) common_ancestor = nullptr;
  decltype(&nvmlDeviceGetEccMode) ecc = nullptr;
  decltype(&nvmlDeviceGetPersistenceMode) persistence_mode = nullptr;
  decltype(&nvmlDeviceGetEnforcedPowerLimit) power_limit = nullptr;
  decltype(&nvmlDeviceGetUtilizationRates) utilization = nullptr;
  nvmlReturn_t (*memory_v2)(nvmlDevice_t, nvmlMemory_v2_t*) = nullptr;
  nvmlReturn_t (*memory_v1)(nvmlDevice_t, nvmlMemory_t*) = nullptr;
  decltype(&nvmlDeviceGetPowerUsage) power = nullptr;
  decltype(&nvmlDeviceGetTotalEnergyConsumption) total_energy = nullptr;
  decltype(&nvmlDeviceGetClockInfo) clock = nullptr;
  nvmlReturn_t (*clocks_event_reasons)(nvmlDevice_t, unsigned long long*) = nullptr;
  decltype(&nvmlGpmQueryDeviceSupport) gpm_support = nullptr;
  decltype(&nvmlGpmSampleAlloc) gpm_alloc = nullptr;
  decltype(&nvmlGpmSampleFree) gpm_free = nullptr;
  decltype(&nvmlGpmSampleGet) gpm_get = nullptr;
  decltype(&nvmlGpmMetricsGet) gpm_metrics = nullptr;
};

/// The initialised library; unless `open`, `error` says why it is not. It is never unloaded, because drivers do not
/// guarantee that this works.
struct NvmlLibrary {
  explicit NvmlLibrary(const std::string& name);
  ~NvmlLibrary();
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;

  std::string text(nvmlReturn_t result) const;

  NvmlFunctions functions;
  bool open = false;
  std::string error;
};

// The GPUs of this machine as NVML sees them: also those that CUDA cannot use or this process may not see.

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
