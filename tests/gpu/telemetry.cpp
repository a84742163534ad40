#include "metrics/hardware/telemetry.h"

#include "device/device.h"
#include "device/tensor.h"
#include "support/catch.h"

using namespace trainopt;

TEST_CASE("NVML and GPM measure a busy GPU or report why they cannot") {
  const auto begin = Clock::now();
  Telemetry telemetry({.device = at::Device(at::kCUDA, 0), .interval_s = 0.05});
  const at::Tensor factor = at::ones({2048, 2048}, at::kCUDA);
  while (seconds_since(begin) < 1.5) {
    at::mm(factor, factor);
    synchronize(at::kCUDA);
  }
  const Values values = telemetry.between(begin, Clock::now()).values;
  const Reasons reasons = telemetry.reasons();
  for (const Metric metric : kGpuMetrics) {
    const std::string name(info(metric).name);
    INFO(name);
    CHECK((values[metric].has_value() || reasons.contains(name)));  // a container may hide some metrics
  }
  REQUIRE(values[Metric::gpu_memory_used_mib].has_value());
  CHECK(*values[Metric::gpu_memory_used_mib] > 1);
  REQUIRE(values[Metric::gpu_util_pct].has_value());
  CHECK(*values[Metric::gpu_util_pct] > 0);
  CHECK(*values[Metric::gpu_util_pct] <= 100);
  CHECK(GpuProbe::driver_version(kNvmlLibrary).has_value());
}
