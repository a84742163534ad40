#include "metrics/async_reader.h"

#include "base/error.h"
#include "device/device.h"
#include "device/pinned.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <utility>

namespace trainopt {
namespace {

void add_spans(StepRecord& row, const std::vector<std::pair<Metric, std::shared_ptr<const EventSpan>>>& spans) {
  for (const auto& [metric, span] : spans) {
    span->end.synchronize();  // long done: the step's own event is behind it
    row[metric] = row[metric].value_or(0.0) + elapsed_ms(span->start, span->end);
  }
}

}  // namespace

AsyncReader::AsyncReader(c10::Device device, bool steady) : device_(with_index(device)), steady_(steady) {
  if (device_.is_cpu()) return;
  ring_ = host_tensor({kMostInFlight + 1, kMetricCount}, at::kFloat, at::MemoryFormat::Contiguous, /*pinned=*/true);
  for (size_t place = 0; place <= kMostInFlight; ++place) arrived_.emplace_back(device_);
}

void AsyncReader::submit(PendingRecord record) {
  if (device_.is_cpu()) {
    for (const auto& [metric, scalar] : record.scalars_) record.row_[metric] = scalar.item<double>();
    add_spans(record.row_, record.spans_);
    landed_.push_back(std::move(record.row_));
    return;
  }
  queue_copy(record, next_place_);
  flying_.push_back({std::move(record), next_place_});
  next_place_ = (next_place_ + 1) % (kMostInFlight + 1);
  if (flying_.size() <= kMostInFlight) return;
  land_oldest();
  // Launching a step takes the host less time than the step: only with this wait do the steps' times add up to the
  // run's.
  PendingRecord& submitted = flying_.back().record;
  if (submitted.paused_ms_) submitted.finish(*submitted.paused_ms_);
}

void AsyncReader::queue_copy(const PendingRecord& record, size_t place) {
  const Stream stream = Stream::current(device_);
  if (!record.scalars_.empty()) {
    const c10::AutoGradMode no_gradients(false);
    std::vector<at::Tensor> scalars;
    scalars.reserve(record.scalars_.size());
    for (const auto& [metric, scalar] : record.scalars_)
      scalars.push_back(
          scalar.reshape({}).to(at::TensorOptions().device(device_).dtype(at::kFloat), /*non_blocking=*/true));
    const at::Tensor packed = scalars.size() == 1 ? scalars.front() : at::stack(scalars);
    ring_.select(0, static_cast<int64_t>(place))
        .narrow(0, 0, static_cast<int64_t>(scalars.size()))
        .copy_(packed.reshape({-1}), /*non_blocking=*/true);
  }
  arrived_[place].record(stream);
}

void AsyncReader::land_oldest() {
  Flight& flight = flying_.front();
  arrived_[flight.place].synchronize();
  const float* values = ring_.const_data_ptr<float>() + flight.place * kMetricCount;
  StepRecord& row = flight.record.row_;
  for (size_t i = 0; i < flight.record.scalars_.size(); ++i) row[flight.record.scalars_[i].first] = values[i];
  add_spans(row, flight.record.spans_);
  landed_.push_back(std::move(row));
  flying_.pop_front();
}

std::vector<StepRecord> AsyncReader::poll() {
  while (!steady_ && !flying_.empty() && arrived_[flying_.front().place].ready()) land_oldest();
  return std::exchange(landed_, {});
}

std::vector<StepRecord> AsyncReader::flush() {
  while (!flying_.empty()) land_oldest();
  return std::exchange(landed_, {});
}

}  // namespace trainopt
