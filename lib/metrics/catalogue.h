// All metrics of a step's record, with their names, units and formats, in one table.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace trainopt {

/// Every column of the metrics, in its order.
enum class Metric : size_t {
  step,
  epoch,
  samples,
  loss,
  learning_rate,
  grad_norm,
  loss_scale,
  nonfinite,
  step_ms,
  data_wait_ms,
  copy_ms,
  device_ms,
  forward_ms,
  backward_ms,
  update_ms,
  samples_per_s,
  tokens_per_s,
  mfu_pct,
  comm_exposed_ms,
  all_reduce_mib,
  reduce_scatter_mib,
  all_gather_mib,
  broadcast_mib,
  send_mib,
  storage_mib,
  cache_hit_pct,
  parameters_mib,
  gradients_mib,
  optimizer_mib,
  gpu_util_pct,
  gpu_sm_util_pct,
  gpu_tensor_util_pct,
  gpu_memory_used_mib,
  memory_allocated_mib,
  memory_reserved_mib,
  memory_active_mib,
  memory_peak_pct,
  alloc_retries,
  device_allocs,
  device_frees,
  gpu_power_w,
  gpu_sm_clock_mhz,
  gpu_throttle,
  cpu_util_pct,
  other_cpu_pct,
  process_rss_mib,
  energy_j
};
inline constexpr size_t kMetricCount = static_cast<size_t>(Metric::energy_j) + 1;

/// How the telemetry samples within a step are combined.
enum class Aggregate { last, mean, max, sum, bits_or };
/// How a value is written. float32: nine digits, which parse back to the same float.
enum class NumberForm { integer, float32, real };

struct MetricInfo {
  Metric metric;
  std::string_view name;
  std::string_view section;  ///< groups related metrics where a viewer has sections
  std::string_view unit;     ///< empty if dimensionless
  Aggregate aggregate;
  NumberForm form;
  std::string_view meaning;
  /// Why it may be null in every record, if the plan does not say it better (run/report.cpp).
  std::string_view why_null = "telemetry took no sample during any recorded step";
};

inline constexpr std::array<MetricInfo, kMetricCount> kCatalogue{{
    {Metric::step, "step", "progress", "", Aggregate::last, NumberForm::integer, "Completed steps, counted from 1."},
    {Metric::epoch, "epoch", "progress", "", Aggregate::last, NumberForm::real,
     "Samples seen divided by the size of the data set."},
    {Metric::samples, "samples", "progress", "", Aggregate::last, NumberForm::integer, "Samples seen by all ranks."},
    {Metric::loss, "loss", "loss", "", Aggregate::mean, NumberForm::float32, "Mean over the step's samples."},
    {Metric::learning_rate, "learning_rate", "optimizer", "", Aggregate::last, NumberForm::real, "Used by this step."},
    {Metric::grad_norm, "grad_norm", "optimizer", "", Aggregate::mean, NumberForm::float32,
     "Global norm after unscaling, before clipping; null unless train.max_grad_norm is set.",
     "train.max_grad_norm is not set"},
    {Metric::loss_scale, "loss_scale", "optimizer", "", Aggregate::last, NumberForm::float32,
     "Loss scale of this step; null without fp16.", "only float16 has a loss scale"},
    {Metric::nonfinite, "nonfinite", "optimizer", "", Aggregate::max, NumberForm::integer,
     "1 if the loss or a gradient was non-finite and the step changed nothing; null unless train.on_nonfinite is skip "
     "or rerun.",
     "only train.on_nonfinite: skip and rerun, and debug.anomaly, check every step"},
    {Metric::step_ms, "step_ms", "time", "ms", Aggregate::mean, NumberForm::real,
     "Wall time between step boundaries, without evaluation and checkpoints."},
    {Metric::data_wait_ms, "data_wait_ms", "time", "ms", Aggregate::mean, NumberForm::real,
     "Time that the training thread was blocked on data."},
    {Metric::copy_ms, "copy_ms", "time", "ms", Aggregate::mean, NumberForm::real,
     "Copies from host to device, timed by the device.", "no copy was known to be complete when a record was taken"},
    {Metric::device_ms, "device_ms", "time", "ms", Aggregate::mean, NumberForm::real,
     "From the first to the last work on the device, timed by the device."},
    {Metric::forward_ms, "forward_ms", "time", "ms", Aggregate::mean, NumberForm::real,
     "Part of device_ms: the forward passes with the loss, over all micro-batches.",
     "a CUDA graph runs forward and backward in one piece"},
    {Metric::backward_ms, "backward_ms", "time", "ms", Aggregate::mean, NumberForm::real,
     "Part of device_ms: the backward passes, with the communication that they wait for.",
     "a CUDA graph runs forward and backward in one piece"},
    {Metric::update_ms, "update_ms", "time", "ms", Aggregate::mean, NumberForm::real,
     "Part of device_ms: the rest of the communication, clipping, the optimizer and the weight average."},
    {Metric::samples_per_s, "samples_per_s", "throughput", "1/s", Aggregate::mean, NumberForm::real,
     "The step's samples over all ranks divided by step_ms."},
    {Metric::tokens_per_s, "tokens_per_s", "throughput", "1/s", Aggregate::mean, NumberForm::real,
     "The step's predicted tokens over all ranks, without padding, divided by step_ms; null for images.",
     "the samples are images, not text"},
    {Metric::mfu_pct, "mfu_pct", "throughput", "%", Aggregate::mean, NumberForm::real,
     "Model FLOP utilization: the time of the step's multiplications at the rate that trainopt roofline measured here "
     "for products of their type, as a share of step_ms. Three times the forward pass; what is computed again does not "
     "count. null until the rate was measured."},
    {Metric::comm_exposed_ms, "comm_exposed_ms", "time", "ms", Aggregate::mean, NumberForm::real,
     "Communication that the step waited for; null with one rank.", "a single rank exchanges nothing"},
    {Metric::all_reduce_mib, "all_reduce_mib", "communication", "MiB", Aggregate::mean, NumberForm::real,
     "Data that this rank passed to all-reduces in this step; null with one rank.", "a single rank exchanges nothing"},
    {Metric::reduce_scatter_mib, "reduce_scatter_mib", "communication", "MiB", Aggregate::mean, NumberForm::real,
     "The same for reduce-scatters: the full input, of which this rank keeps a part.",
     "a single rank exchanges nothing"},
    {Metric::all_gather_mib, "all_gather_mib", "communication", "MiB", Aggregate::mean, NumberForm::real,
     "The same for all-gathers: the full output, of which this rank provides a part.",
     "a single rank exchanges nothing"},
    {Metric::broadcast_mib, "broadcast_mib", "communication", "MiB", Aggregate::mean, NumberForm::real,
     "The same for broadcasts.", "a single rank exchanges nothing"},
    {Metric::send_mib, "send_mib", "communication", "MiB", Aggregate::mean, NumberForm::real,
     "Data that this rank sent to another one: activations and their gradients between the stages of a pipeline.",
     "a single rank exchanges nothing"},
    {Metric::storage_mib, "storage_mib", "storage", "MiB", Aggregate::sum, NumberForm::real,
     "Data that this rank received from object storage during the step, most of it for later steps; null if all files "
     "are local.",
     "nothing was read of object storage during steps"},
    {Metric::cache_hit_pct, "cache_hit_pct", "storage", "%", Aggregate::mean, NumberForm::real,
     "Share of the bytes of remote files read during the step that the cache on disk had; null without one, or if none "
     "were read.",
     "nothing was read through a data.cache of object storage during steps"},
    {Metric::parameters_mib, "parameters_mib", "memory", "MiB", Aggregate::max, NumberForm::real,
     "Parameters that this rank holds between steps."},
    {Metric::gradients_mib, "gradients_mib", "memory", "MiB", Aggregate::max, NumberForm::real,
     "Gradients that this rank holds at the update."},
    {Metric::optimizer_mib, "optimizer_mib", "memory", "MiB", Aggregate::max, NumberForm::real,
     "Optimizer state that this rank holds."},
    {Metric::gpu_util_pct, "gpu_util_pct", "gpu", "%", Aggregate::mean, NumberForm::real,
     "NVML: share of time with at least one kernel running."},
    {Metric::gpu_sm_util_pct, "gpu_sm_util_pct", "gpu", "%", Aggregate::mean, NumberForm::real,
     "GPM: share of busy multiprocessors."},
    {Metric::gpu_tensor_util_pct, "gpu_tensor_util_pct", "gpu", "%", Aggregate::mean, NumberForm::real,
     "GPM: share of time with tensor cores active."},
    {Metric::gpu_memory_used_mib, "gpu_memory_used_mib", "gpu", "MiB", Aggregate::max, NumberForm::real,
     "NVML: memory in use on the GPU, by anyone."},
    {Metric::memory_allocated_mib, "memory_allocated_mib", "memory", "MiB", Aggregate::max, NumberForm::real,
     "libtorch's allocator for the device: memory held by tensors."},
    {Metric::memory_reserved_mib, "memory_reserved_mib", "memory", "MiB", Aggregate::max, NumberForm::real,
     "libtorch's allocator on a GPU: memory reserved, including free memory in its cache; null on a CPU."},
    {Metric::memory_active_mib, "memory_active_mib", "memory", "MiB", Aggregate::max, NumberForm::real,
     "libtorch's allocator on a GPU: memory_allocated_mib, and freed memory that other streams may still use; null on "
     "a CPU."},
    {Metric::memory_peak_pct, "memory_peak_pct", "memory", "%", Aggregate::max, NumberForm::real,
     "The largest amount of memory so far as a share of the device's memory: on a GPU of memory_reserved_mib, on a CPU "
     "of memory_allocated_mib."},
    {Metric::alloc_retries, "alloc_retries", "memory", "", Aggregate::last, NumberForm::integer,
     "libtorch's allocator on a GPU: allocations so far for which it first had to empty its cache, because memory was "
     "full; null on a CPU."},
    {Metric::device_allocs, "device_allocs", "memory", "", Aggregate::last, NumberForm::integer,
     "libtorch's allocator on a GPU: requests to the driver for memory so far; null on a CPU."},
    {Metric::device_frees, "device_frees", "memory", "", Aggregate::last, NumberForm::integer,
     "libtorch's allocator on a GPU: returns of memory to the driver so far; null on a CPU."},
    {Metric::gpu_power_w, "gpu_power_w", "gpu", "W", Aggregate::mean, NumberForm::real, "NVML: power drawn."},
    {Metric::gpu_sm_clock_mhz, "gpu_sm_clock_mhz", "gpu", "MHz", Aggregate::mean, NumberForm::real,
     "NVML: clock of the multiprocessors."},
    {Metric::gpu_throttle, "gpu_throttle", "gpu", "", Aggregate::bits_or, NumberForm::integer,
     "NVML: bits of the reasons why the clock is throttled (4 power cap, 8 hardware, 32 and 64 heat, 128 power brake); "
     "0 if none."},
    {Metric::cpu_util_pct, "cpu_util_pct", "cpu", "%", Aggregate::mean, NumberForm::real,
     "CPU time of this process, as a share of its allowed cores."},
    {Metric::other_cpu_pct, "other_cpu_pct", "cpu", "%", Aggregate::mean, NumberForm::real,
     "CPU time of everything else on the CPUs this process may run on, over the last half second."},
    {Metric::process_rss_mib, "process_rss_mib", "memory", "MiB", Aggregate::max, NumberForm::real,
     "Resident memory of this process."},
    {Metric::energy_j, "energy_j", "energy", "J", Aggregate::sum, NumberForm::real,
     "Energy since the last reading, at least a second ago; null in steps without a reading. summary.json says of "
     "what."},
}};

constexpr const MetricInfo& info(Metric metric) { return kCatalogue[static_cast<size_t>(metric)]; }

/// One value per metric; nullopt means not measured, which is not 0.
class Values {
 public:
  std::optional<double>& operator[](Metric metric) { return values_[static_cast<size_t>(metric)]; }
  const std::optional<double>& operator[](Metric metric) const { return values_[static_cast<size_t>(metric)]; }

 private:
  std::array<std::optional<double>, kMetricCount> values_;
};

}  // namespace trainopt
