#include "metrics/record.h"

#include "base/error.h"
#include "base/units.h"
#include "device/tensor.h"

namespace trainopt {

void PendingRecord::set_position(int64_t step, int64_t samples, int64_t step_samples, int64_t dataset_size) {
  row_[Metric::step] = static_cast<double>(step);
  row_[Metric::samples] = static_cast<double>(samples);
  if (dataset_size > 0) row_[Metric::epoch] = static_cast<double>(samples) / static_cast<double>(dataset_size);
  row_.step_samples = step_samples;
}

void PendingRecord::add(Metric metric, const at::Tensor& scalar) {
  TRAINOPT_CHECK_EQUAL(scalar.numel(), 1);
  const at::Tensor value = scalar.detach();
  for (auto& [known, sum] : scalars_)
    if (known == metric) {
      sum = sum + value;  // not in place: the first one belongs to the caller
      return;
    }
  scalars_.emplace_back(metric, value);
}

void PendingRecord::set_memory(c10::Device device) {
  if (const auto stats = memory_stats(device)) set_memory(*stats, device.is_cpu());
}

void PendingRecord::set_memory(const MemoryStats& stats, bool of_cpu) {
  row_[Metric::memory_allocated_mib] = mib(stats.allocated);
  const int64_t peak = of_cpu ? stats.peak_allocated : stats.peak_reserved;
  if (stats.capacity > 0) row_[Metric::memory_peak_pct] = 100 * mib(peak) / mib(stats.capacity);
  if (of_cpu) return;
  row_[Metric::memory_reserved_mib] = mib(stats.reserved);
  row_[Metric::memory_active_mib] = mib(stats.active);
  row_[Metric::alloc_retries] = static_cast<double>(stats.retries);
  row_[Metric::device_allocs] = static_cast<double>(stats.device_allocs);
  row_[Metric::device_frees] = static_cast<double>(stats.device_frees);
}

void PendingRecord::finish(double paused_ms) {
  paused_ms_ = paused_ms;
  row_.ended = Clock::now();
  const double step_ms = milliseconds_between(row_.began, row_.ended) - paused_ms;
  row_[Metric::step_ms] = step_ms;
  if (step_ms <= 0) return;
  row_[Metric::samples_per_s] = static_cast<double>(row_.step_samples) / step_ms * 1e3;
  if (least_ms_) row_[Metric::mfu_pct] = 100 * *least_ms_ / step_ms;
  if (row_.step_tokens > 0) row_[Metric::tokens_per_s] = static_cast<double>(row_.step_tokens) / step_ms * 1e3;
}

}  // namespace trainopt
