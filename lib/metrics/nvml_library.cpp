#include "metrics/nvml_library.h"

#include <fmt/format.h>

#include <dlfcn.h>

namespace trainopt {
namespace {

template <class Function>
void load(void* library, Function& function, const char* name, const char* older_name = nullptr) {
  void* symbol = dlsym(library, name);
  if (!symbol && older_name) symbol = dlsym(library, older_name);
  function = reinterpret_cast<Function>(symbol);
}

NvmlFunctions load_functions(void* library) {
  NvmlFunctions f;
  load(library, f.init, "nvmlInit_v2");
  load(library, f.shutdown, "nvmlShutdown");
  load(library, f.error_string, "nvmlErrorString");
  load(library, f.driver_version, "nvmlSystemGetDriverVersion");
  load(library, f.handle_by_pci, "nvmlDeviceGetHandleByPciBusId_v2");
  load(library, f.count, "nvmlDeviceGetCount_v2");
  load(library, f.handle_by_index, "nvmlDeviceGetHandleByIndex_v2");
  load(library, f.name, "nvmlDeviceGetName");
  load(library, f.uuid, "nvmlDeviceGetUUID");
  load(library, f.pci_info, "nvmlDeviceGetPciInfo_v3");
  load(library, f.compute_mode, "nvmlDeviceGetComputeMode");
  load(library, f.processes, "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2");
  load(library, f.mig_mode, "nvmlDeviceGetMigMode");
  load(library, f.max_mig_devices, "nvmlDeviceGetMaxMigDeviceCount");
  load(library, f.mig_device, "nvmlDeviceGetMigDeviceHandleByIndex");
  load(library, f.pcie_generation, "nvmlDeviceGetCurrPcieLinkGeneration");
  load(library, f.max_pcie_generation, "nvmlDeviceGetMaxPcieLinkGeneration");
  load(library, f.pcie_width, "nvmlDeviceGetCurrPcieLinkWidth");
  load(library, f.max_pcie_width, "nvmlDeviceGetMaxPcieLinkWidth");
  load(library, f.nvlink_state, "nvmlDeviceGetNvLinkState");
  load(library, f.nvlink_version, "nvmlDeviceGetNvLinkVersion");
  load(library, f.nvlink_remote, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
  load(library, f.nvlink_remote_type, "nvmlDeviceGetNvLinkRemoteDeviceType");
  load(library, f.field_values, "nvmlDeviceGetFieldValues");
  load(library, f.common_ancestor, "nvmlDeviceGetTopologyCommonAncestor");
  load(library, f.ecc, "nvmlDeviceGetEccMode");
  load(library, f.persistence_mode, "nvmlDeviceGetPersistenceMode");
  load(library, f.power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  load(library, f.utilization, "nvmlDeviceGetUtilizationRates");
  load(library, f.total_energy, "nvmlDeviceGetTotalEnergyConsumption");
  load(library, f.memory_v2, "nvmlDeviceGetMemoryInfo_v2");
  load(library, f.memory_v1, "nvmlDeviceGetMemoryInfo");
  load(library, f.power, "nvmlDeviceGetPowerUsage");
  load(library, f.clock, "nvmlDeviceGetClockInfo");
  load(library, f.clocks_event_reasons, "nvmlDeviceGetCurrentClocksEventReasons",
       "nvmlDeviceGetCurrentClocksThrottleReasons");
  load(library, f.gpm_support, "nvmlGpmQueryDeviceSupport");
  load(library, f.gpm_alloc, "nvmlGpmSampleAlloc");
  load(library, f.gpm_free, "nvmlGpmSampleFree");
  load(library, f.gpm_get, "nvmlGpmSampleGet");
  load(library, f.gpm_metrics, "nvmlGpmMetricsGet");
  return f;
}

}  // namespace

NvmlLibrary::NvmlLibrary(const std::string& name) {
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    error = fmt::format("{} cannot be loaded: no NVIDIA driver", name);
    return;
  }
  functions = load_functions(library);
  if (!functions.init || !functions.handle_by_pci || !functions.shutdown) {
    error = fmt::format("{} lacks required functions: the driver is too old", name);
    return;
  }
  const nvmlReturn_t result = functions.init();
  open = result == NVML_SUCCESS;
  if (!open) error = "NVML cannot be initialised: " + text(result);
}

NvmlLibrary::~NvmlLibrary() {
  if (open) functions.shutdown();
}

std::string NvmlLibrary::text(nvmlReturn_t result) const {
  const char* words = functions.error_string ? functions.error_string(result) : nullptr;
  return words ? std::string(words) : fmt::format("NVML error {}", static_cast<int>(result));
}

}  // namespace trainopt
