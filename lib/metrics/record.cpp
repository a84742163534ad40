#include "metrics/record.h"

#include "base/error.h"
#include "device/memory.h"
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
  const auto stats = memory_stats(device);
  if (!stats) return;
  row_[Metric::memory_allocated_mib] = static_cast<double>(stats->allocated) / 0x1p20;
  row_[Metric::memory_reserved_mib] = static_cast<double>(stats->reserved) / 0x1p20;
}

void PendingRecord::finish(double paused_ms) {
  paused_ms_ = paused_ms;
  row_.ended = Clock::now();
  const double step_ms = milliseconds_between(row_.began, row_.ended) - paused_ms;
  row_[Metric::step_ms] = step_ms;
  if (step_ms > 0) row_[Metric::samples_per_s] = static_cast<double>(row_.step_samples) / step_ms * 1e3;
}

}  // namespace trainopt
