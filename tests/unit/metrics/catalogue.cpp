#include "metrics/catalogue.h"

#include "support/catch.h"

#include <set>
#include <string>

using namespace trainopt;

TEST_CASE("the record has the documented names in the documented order") {
  const std::vector<std::string> documented{"step",
                                            "epoch",
                                            "samples",
                                            "loss",
                                            "learning_rate",
                                            "grad_norm",
                                            "loss_scale",
                                            "nonfinite",
                                            "step_ms",
                                            "data_wait_ms",
                                            "copy_ms",
                                            "device_ms",
                                            "forward_ms",
                                            "backward_ms",
                                            "update_ms",
                                            "samples_per_s",
                                            "tokens_per_s",
                                            "mfu_pct",
                                            "comm_exposed_ms",
                                            "all_reduce_mib",
                                            "reduce_scatter_mib",
                                            "all_gather_mib",
                                            "broadcast_mib",
                                            "send_mib",
                                            "storage_mib",
                                            "cache_hit_pct",
                                            "parameters_mib",
                                            "gradients_mib",
                                            "optimizer_mib",
                                            "gpu_util_pct",
                                            "gpu_sm_util_pct",
                                            "gpu_tensor_util_pct",
                                            "gpu_memory_used_mib",
                                            "memory_allocated_mib",
                                            "memory_reserved_mib",
                                            "memory_active_mib",
                                            "memory_peak_pct",
                                            "alloc_retries",
                                            "device_allocs",
                                            "device_frees",
                                            "gpu_power_w",
                                            "gpu_sm_clock_mhz",
                                            "gpu_throttle",
                                            "cpu_util_pct",
                                            "other_cpu_pct",
                                            "process_rss_mib",
                                            "energy_j"};
  REQUIRE(documented.size() == kMetricCount);
  for (size_t i = 0; i < kMetricCount; ++i) {
    CHECK(kCatalogue[i].name == documented[i]);
    CHECK(kCatalogue[i].metric == static_cast<Metric>(i));
    CHECK(!kCatalogue[i].meaning.empty());
    CHECK(kCatalogue[i].meaning.back() == '.');
  }
}

TEST_CASE("a metric's name ends in its unit") {
  for (const MetricInfo& metric : kCatalogue) {
    const std::string name(metric.name), unit(metric.unit);
    CHECK(name.ends_with("_ms") == (unit == "ms"));
    CHECK(name.ends_with("_pct") == (unit == "%"));
    CHECK(name.ends_with("_mib") == (unit == "MiB"));
    CHECK(name.ends_with("_per_s") == (unit == "1/s"));
    CHECK(name.ends_with("_j") == (unit == "J"));
  }
}

TEST_CASE("new values are all unmeasured") {
  const Values values;
  for (const MetricInfo& metric : kCatalogue) CHECK(!values[metric.metric]);
}
