// Measures one GPU with NVIDIA's management library (NVML). The library belongs to the driver, so it is loaded by name
// at run time. Anything missing (library, symbol, permission, hardware) is a reason, not an error.
#pragma once

#include "metrics/catalogue.h"

#include <map>
#include <memory>
#include <optional>
#include <string>

namespace trainopt {

/// Why a metric has no value: metric name -> reason.
using Reasons = std::map<std::string, std::string>;

struct NvmlLibrary;

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

class GpuProbe {
 public:
  /// The GPU at `pci_bus_id` (NVML's order of GPUs differs from this process's). Never throws; without the library
  /// every GPU metric has a reason. `library_name` is passed to dlopen; tests pass their own.
  GpuProbe(const std::string& library_name, const std::string& pci_bus_id);
  /// The GPU at `pci_bus_id`, by a library that others use too.
  GpuProbe(std::shared_ptr<const NvmlLibrary> library, const std::string& pci_bus_id);
  ~GpuProbe();
  GpuProbe(const GpuProbe&) = delete;
  GpuProbe& operator=(const GpuProbe&) = delete;

  /// Fills the values that can be measured now, in about 100 µs. GPM needs two calls at least 100 ms apart.
  void sample(Values& values);
  /// Restarts GPM: its next values cover the time from the next sample() on.
  void restart_interval();
  const Reasons& reasons() const { return reasons_; }

  /// "580.82.07"; nullopt without the library.
  static std::optional<std::string> driver_version(const std::string& library_name);

 private:
  struct Nvml;
  void sample_counters(Values& values);
  void sample_gpm(Values& values);
  void absent(Metric metric, const std::string& reason);
  void lose_gpu(const std::string& reason);

  std::unique_ptr<Nvml> nvml_;
  Reasons reasons_;
};

/// The metrics that only a GpuProbe fills.
inline constexpr std::array kGpuMetrics{
    Metric::gpu_util_pct, Metric::gpu_sm_util_pct,  Metric::gpu_tensor_util_pct, Metric::gpu_memory_used_mib,
    Metric::gpu_power_w,  Metric::gpu_sm_clock_mhz, Metric::gpu_throttle};

}  // namespace trainopt
