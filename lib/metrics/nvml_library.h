// NVML, loaded at run time because a machine without an NVIDIA GPU has no driver.
#pragma once

#include <nvml.h>

#include <string>

namespace trainopt {

/// The NVML functions in use. A null one is missing from this driver.
struct NvmlFunctions {
  decltype(&nvmlInit_v2) init = nullptr;
  decltype(&nvmlShutdown) shutdown = nullptr;
  decltype(&nvmlErrorString) error_string = nullptr;
  decltype(&nvmlSystemGetDriverVersion) driver_version = nullptr;
  decltype(&nvmlDeviceGetHandleByPciBusId_v2) handle_by_pci = nullptr;
  decltype(&nvmlDeviceGetUtilizationRates) utilization = nullptr;
  nvmlReturn_t (*memory_v2)(nvmlDevice_t, nvmlMemory_v2_t*) = nullptr;
  nvmlReturn_t (*memory_v1)(nvmlDevice_t, nvmlMemory_t*) = nullptr;
  decltype(&nvmlDeviceGetPowerUsage) power = nullptr;
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

}  // namespace trainopt
