// The record of one step, while it is being taken and once it has been read.
#pragma once

#include "base/clock.h"
#include "device/stream.h"
#include "metrics/catalogue.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace trainopt {

/// What one of several ranks says of a step.
struct RankTimes {
  double step_ms = 0, data_wait_ms = 0, comm_exposed_ms = 0;
  /// What the others may have to wait for.
  double busy_ms() const { return step_ms - comm_exposed_ms; }
};

/// A step's numbers, all on the host. With several ranks those of rank 0, the loss being that of all.
struct StepRecord : Values {
  int64_t step_samples = 0;        ///< real samples of this step over all ranks
  Clock::time_point began, ended;  ///< the step's boundaries on the host
  std::vector<RankTimes> ranks;    ///< by rank; empty with one

  int64_t step() const { return static_cast<int64_t>((*this)[Metric::step].value_or(0)); }
};

/// A step's numbers, some still on the device. Nothing here waits for the device.
class PendingRecord {
 public:
  /// `began`: the step's start on the host. Where the last step's end is given, no time falls between the steps.
  explicit PendingRecord(Clock::time_point began = Clock::now()) { row_.began = began; }
  /// `step` from 1; `samples` seen by all ranks including this step; `dataset_size` samples are an epoch.
  void set_position(int64_t step, int64_t samples, int64_t step_samples, int64_t dataset_size);

  void set(Metric metric, double value) { row_[metric] = value; }
  /// Adds a scalar that may be on the device and still being computed: micro-batches add up. It is read when the record
  /// is submitted; until then nobody may overwrite it.
  void add(Metric metric, const at::Tensor& scalar);
  /// Adds device time, also still to come; both ends must be recorded before the record is submitted.
  void add(Metric metric, std::shared_ptr<const EventSpan> span) { spans_.emplace_back(metric, std::move(span)); }
  /// libtorch's allocator now; nothing on the CPU.
  void set_memory(c10::Device device);
  /// The step's end on the host: step_ms is the time since its start less `paused_ms` (evaluation, checkpoints),
  /// samples_per_s follows. AsyncReader::submit() moves it to when it returns, since waiting for the device is part of
  /// the step.
  void finish(double paused_ms = 0);

 private:
  friend class AsyncReader;
  StepRecord row_;
  std::optional<double> paused_ms_;  // once finished
  std::vector<std::pair<Metric, at::Tensor>> scalars_;
  std::vector<std::pair<Metric, std::shared_ptr<const EventSpan>>> spans_;
};

}  // namespace trainopt
