#include "metrics/hardware/gpu_probe.h"

#include "base/clock.h"
#include "base/log.h"
#include "metrics/hardware/nvml.h"

#include <fmt/format.h>

#include <set>
#include <utility>

namespace trainopt {
namespace {

/// Reasons that throttle the clock under load: not idleness, and not settings that a user chose.
constexpr unsigned long long kThrottleBits =
    nvmlClocksEventReasonSwPowerCap | nvmlClocksThrottleReasonHwSlowdown | nvmlClocksEventReasonSwThermalSlowdown |
    nvmlClocksThrottleReasonHwThermalSlowdown | nvmlClocksThrottleReasonHwPowerBrakeSlowdown;
bool is_loss(nvmlReturn_t result) { return result == NVML_ERROR_GPU_IS_LOST || result == NVML_ERROR_RESET_REQUIRED; }

/// GPM's counters refresh every 100 ms; a shorter interval repeats the last value or is empty.
constexpr double kGpmIntervalMs = 105;

}  // namespace

struct GpuProbe::Nvml {
  explicit Nvml(std::shared_ptr<const NvmlLibrary> shared) : held(std::move(shared)) {}
  ~Nvml() {
    for (nvmlGpmSample_t sample : {earlier, later})
      if (sample) library.functions.gpm_free(sample);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  const std::shared_ptr<const NvmlLibrary> held;
  const NvmlLibrary& library = *held;
  nvmlDevice_t device = nullptr;
  bool lost = false;
  std::set<Metric> unavailable;
  bool gpm = false, gpm_has_earlier = false;
  nvmlGpmSample_t earlier = nullptr, later = nullptr;
  Clock::time_point earlier_at;
  std::optional<double> sm_util, tensor_util;  // values of the last complete interval
};

GpuProbe::GpuProbe(const std::string& library_name, const std::string& pci_bus_id)
    : GpuProbe(std::make_shared<const NvmlLibrary>(library_name), pci_bus_id) {}

GpuProbe::GpuProbe(std::shared_ptr<const NvmlLibrary> shared, const std::string& pci_bus_id)
    : nvml_(std::make_unique<Nvml>(std::move(shared))) {
  const auto all_absent = [this](const std::string& reason) {
    for (const Metric metric : kGpuMetrics) absent(metric, reason);
    nvml_.reset();
  };
  const NvmlLibrary& library = nvml_->library;
  if (!library.open) {
    all_absent(std::string(library.error));
    return;
  }
  if (const auto result = library.functions.handle_by_pci(pci_bus_id.c_str(), &nvml_->device); result != NVML_SUCCESS) {
    all_absent(fmt::format("NVML cannot find the GPU {}: {}", pci_bus_id, library.text(result)));
    return;
  }

  const NvmlFunctions& f = library.functions;
  std::string reason;
  nvmlGpmSupport_t support{};
  support.version = NVML_GPM_SUPPORT_VERSION;
  if (!f.gpm_support || !f.gpm_alloc || !f.gpm_free || !f.gpm_get || !f.gpm_metrics)
    reason = "this driver does not support GPM";
  else if (const auto result = f.gpm_support(nvml_->device, &support); result != NVML_SUCCESS)
    reason = "GPM: " + library.text(result);
  else if (!support.isSupportedDevice)
    reason = "this GPU does not support GPM (sm_90 and later do)";
  else if (f.gpm_alloc(&nvml_->earlier) != NVML_SUCCESS || f.gpm_alloc(&nvml_->later) != NVML_SUCCESS)
    reason = "GPM could not allocate its sample buffers";
  nvml_->gpm = reason.empty();
  if (!nvml_->gpm)
    for (const Metric metric : {Metric::gpu_sm_util_pct, Metric::gpu_tensor_util_pct}) absent(metric, reason);
}

GpuProbe::~GpuProbe() = default;

void GpuProbe::absent(Metric metric, const std::string& reason) { reasons_.emplace(info(metric).name, reason); }

/// Queries of a lost GPU can be slow, and it does not come back within a process.
void GpuProbe::lose_gpu(const std::string& reason) {
  if (std::exchange(nvml_->lost, true)) return;
  log_warning("the GPU is no longer measured: {}", reason);
  for (const Metric metric : kGpuMetrics) reasons_[std::string(info(metric).name)] = reason;
}

void GpuProbe::sample(Values& values) {
  if (!nvml_ || nvml_->lost) return;
  sample_counters(values);
  if (nvml_->gpm && !nvml_->lost) sample_gpm(values);
}

void GpuProbe::restart_interval() {
  if (nvml_) nvml_->gpm_has_earlier = false;
}

void GpuProbe::sample_counters(Values& values) {
  const NvmlFunctions& f = nvml_->library.functions;
  // Retries at the next sample after a failure that may be temporary, but not after a permanent one.
  const auto read = [&](Metric metric, bool known, auto ask) {
    const std::string name(info(metric).name);
    if (nvml_->lost) return;
    if (!known) return absent(metric, "this driver's NVML has no function for it");
    if (nvml_->unavailable.contains(metric)) return;
    const nvmlReturn_t result = ask();
    if (result == NVML_SUCCESS) {
      reasons_.erase(name);
      return;
    }
    if (is_loss(result)) return lose_gpu("NVML: " + nvml_->library.text(result));
    const bool permanently = result == NVML_ERROR_NOT_SUPPORTED || result == NVML_ERROR_NO_PERMISSION ||
                             result == NVML_ERROR_FUNCTION_NOT_FOUND;
    if (permanently) nvml_->unavailable.insert(metric);
    reasons_[name] = "NVML: " + nvml_->library.text(result);
  };
  const auto keep = [&](Metric metric, nvmlReturn_t result, double value) {
    if (result == NVML_SUCCESS) values[metric] = value;
    return result;
  };

  read(Metric::gpu_util_pct, f.utilization, [&] {
    nvmlUtilization_t rates{};
    const auto result = f.utilization(nvml_->device, &rates);
    return keep(Metric::gpu_util_pct, result, rates.gpu);
  });
  read(Metric::gpu_memory_used_mib, f.memory_v2 || f.memory_v1, [&] {
    // Version 2 reports the driver's own reserved memory separately.
    nvmlMemory_v2_t memory{};
    memory.version = nvmlMemory_v2;
    auto result = f.memory_v2 ? f.memory_v2(nvml_->device, &memory) : NVML_ERROR_FUNCTION_NOT_FOUND;
    auto used = memory.used;
    if (result != NVML_SUCCESS && f.memory_v1) {
      nvmlMemory_t older{};
      result = f.memory_v1(nvml_->device, &older);
      used = older.used;
    }
    return keep(Metric::gpu_memory_used_mib, result, static_cast<double>(used) / 0x1p20);
  });
  read(Metric::gpu_power_w, f.power, [&] {
    unsigned milliwatts = 0;
    const auto result = f.power(nvml_->device, &milliwatts);
    return keep(Metric::gpu_power_w, result, milliwatts / 1e3);
  });
  read(Metric::gpu_sm_clock_mhz, f.clock, [&] {
    unsigned megahertz = 0;
    const auto result = f.clock(nvml_->device, NVML_CLOCK_SM, &megahertz);
    return keep(Metric::gpu_sm_clock_mhz, result, megahertz);
  });
  read(Metric::gpu_throttle, f.clocks_event_reasons, [&] {
    unsigned long long bits = 0;
    const auto result = f.clocks_event_reasons(nvml_->device, &bits);
    return keep(Metric::gpu_throttle, result, static_cast<double>(bits & kThrottleBits));
  });
}

void GpuProbe::sample_gpm(Values& values) {
  Nvml& state = *nvml_;
  const NvmlFunctions& f = state.library.functions;
  const auto now = Clock::now();
  const auto give_up = [&](nvmlReturn_t result) {
    if (is_loss(result)) return lose_gpu("NVML: " + state.library.text(result));
    state.gpm = false;
    for (const Metric metric : {Metric::gpu_sm_util_pct, Metric::gpu_tensor_util_pct})
      absent(metric, "GPM: " + state.library.text(result));
  };
  if (!state.gpm_has_earlier) {
    if (const auto result = f.gpm_get(state.device, state.earlier); result != NVML_SUCCESS) return give_up(result);
    state.gpm_has_earlier = true;
    state.earlier_at = now;
    state.sm_util.reset();
    state.tensor_util.reset();
    return;
  }
  if (milliseconds_between(state.earlier_at, now) >= kGpmIntervalMs) {
    if (const auto result = f.gpm_get(state.device, state.later); result != NVML_SUCCESS) return give_up(result);
    nvmlGpmMetricsGet_t request{};
    request.version = NVML_GPM_METRICS_GET_VERSION;
    request.numMetrics = 2;
    request.sample1 = state.earlier;
    request.sample2 = state.later;
    request.metrics[0].metricId = NVML_GPM_METRIC_SM_UTIL;
    request.metrics[1].metricId = NVML_GPM_METRIC_ANY_TENSOR_UTIL;
    if (const auto result = f.gpm_metrics(&request); result != NVML_SUCCESS) return give_up(result);
    const auto value_of = [&](const nvmlGpmMetric_t& metric, Metric name) -> std::optional<double> {
      if (metric.nvmlReturn == NVML_SUCCESS) {
        reasons_.erase(std::string(info(name).name));
        return metric.value;
      }
      absent(name, "GPM: " + state.library.text(metric.nvmlReturn));
      return std::nullopt;
    };
    state.sm_util = value_of(request.metrics[0], Metric::gpu_sm_util_pct);
    state.tensor_util = value_of(request.metrics[1], Metric::gpu_tensor_util_pct);
    std::swap(state.earlier, state.later);
    state.earlier_at = now;
  }
  values[Metric::gpu_sm_util_pct] = state.sm_util;
  values[Metric::gpu_tensor_util_pct] = state.tensor_util;
}

std::optional<std::string> GpuProbe::driver_version(const std::string& library_name) {
  const NvmlLibrary nvml(library_name);
  char text[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE] = {};
  if (!nvml.open || !nvml.functions.driver_version || nvml.functions.driver_version(text, sizeof text) != NVML_SUCCESS)
    return std::nullopt;
  return std::string(text);
}

}  // namespace trainopt
