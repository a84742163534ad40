#include "metrics/async_reader.h"

#include "base/error.h"
#include "device/device.h"
#include "device/memory.h"
#include "device/tensor.h"

#include <c10/core/GradMode.h>

#include <utility>

namespace trainopt {
namespace {

void add_spans(StepRecord& row, const std::vector<std::pair<Metric, std::shared_ptr<const EventSpan>>>& spans) {
  for (const auto& [metric, span] : spans) {
    span->end.synchronize();  // returns at once: the step's own event came after it
    row[metric] = row[metric].value_or(0.0) + elapsed_ms(span->start, span->end);
  }
}

}  // namespace

AsyncReader::AsyncReader(c10::Device device, bool fixed_delay)
    : device_(with_index(device)), fixed_delay_(fixed_delay) {
  if (device_.is_cpu()) return;
  ring_ = host_tensor({kMaxInFlight + 1, kMetricCount}, at::kFloat, at::MemoryFormat::Contiguous, /*pinned=*/true);
  for (size_t slot = 0; slot <= kMaxInFlight; ++slot) arrived_.emplace_back(device_);
}

void AsyncReader::submit(PendingRecord record) {
  if (device_.is_cpu()) {
    // Not item(), which would wait on a GPU and so be reported by debug.find_syncs.
    for (const auto& [metric, scalar] : record.scalars_)
      record.row_[metric] = *scalar.to(at::kDouble).const_data_ptr<double>();
    add_spans(record.row_, record.spans_);
    ready_rows_.push_back(std::move(record.row_));
    return;
  }
  queue_copy(record, next_slot_);
  in_flight_.push_back({std::move(record), next_slot_});
  next_slot_ = (next_slot_ + 1) % (kMaxInFlight + 1);
  if (in_flight_.size() <= kMaxInFlight) return;
  read_oldest();
  // The host launches a step faster than the device runs it. The step times add up to the run's time only if they
  // include this wait.
  PendingRecord& submitted = in_flight_.back().record;
  if (submitted.paused_ms_) submitted.finish(*submitted.paused_ms_);
}

void AsyncReader::queue_copy(const PendingRecord& record, size_t slot) {
  const Stream stream = Stream::current(device_);
  if (!record.scalars_.empty()) {
    const c10::AutoGradMode no_gradients(false);
    std::vector<at::Tensor> scalars;
    scalars.reserve(record.scalars_.size());
    for (const auto& [metric, scalar] : record.scalars_)
      scalars.push_back(
          scalar.reshape({}).to(at::TensorOptions().device(device_).dtype(at::kFloat), /*non_blocking=*/true));
    const at::Tensor packed = scalars.size() == 1 ? scalars.front() : at::stack(scalars);
    ring_.select(0, static_cast<int64_t>(slot))
        .narrow(0, 0, static_cast<int64_t>(scalars.size()))
        .copy_(packed.reshape({-1}), /*non_blocking=*/true);
  }
  arrived_[slot].record(stream);
}

void AsyncReader::read_oldest() {
  InFlight& oldest = in_flight_.front();
  arrived_[oldest.slot].synchronize();
  const float* values = ring_.const_data_ptr<float>() + oldest.slot * kMetricCount;
  StepRecord& row = oldest.record.row_;
  for (size_t i = 0; i < oldest.record.scalars_.size(); ++i) row[oldest.record.scalars_[i].first] = values[i];
  add_spans(row, oldest.record.spans_);
  ready_rows_.push_back(std::move(row));
  in_flight_.pop_front();
}

std::vector<StepRecord> AsyncReader::poll() {
  while (!fixed_delay_ && !in_flight_.empty() && arrived_[in_flight_.front().slot].ready()) read_oldest();
  return std::exchange(ready_rows_, {});
}

std::vector<StepRecord> AsyncReader::flush() {
  while (!in_flight_.empty()) read_oldest();
  return std::exchange(ready_rows_, {});
}

}  // namespace trainopt
