// The record of one step: PendingRecord while it is measured, StepRecord once it has been read.
#pragma once

#include "base/clock.h"
#include "device/memory.h"
#include "device/stream.h"
#include "metrics/catalogue.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace trainopt {

/// One rank's times in a step.
struct RankTimes {
  double step_ms = 0, data_wait_ms = 0, comm_exposed_ms = 0;
  /// Time for which the other ranks may have to wait.
  double busy_ms() const { return step_ms - comm_exposed_ms; }
};

/// How a step was profiled. Both `warmup` and `active` steps are slower than others.
enum class Profiling { none, warmup, active };

/// A step's metrics, all on the host. With several ranks they are rank 0's, except that the loss is that of all ranks.
struct StepRecord : Values {
  int64_t step_samples = 0;        ///< real samples of this step over all ranks
  int64_t step_tokens = 0;         ///< tokens to predict of this step over all ranks; 0 for images
  Clock::time_point began, ended;  ///< the step's boundaries on the host
  std::vector<RankTimes> ranks;    ///< by rank; empty with one
  Profiling profiling = Profiling::none;

  int64_t step() const { return static_cast<int64_t>((*this)[Metric::step].value_or(0)); }
};

/// A step's metrics, some still on the device. Nothing here waits for the device.
class PendingRecord {
 public:
  /// `began`: the step's start on the host. Pass the previous step's end to leave no time between steps.
  explicit PendingRecord(Clock::time_point began = Clock::now()) { row_.began = began; }
  /// `step` counts from 1. `samples` have been seen by all ranks, including this step; `dataset_size` make an epoch.
  void set_position(int64_t step, int64_t samples, int64_t step_samples, int64_t dataset_size);
  void set_tokens(int64_t step_tokens) { row_.step_tokens = step_tokens; }
  /// How long the step's multiplications would take at the measured peak; mfu_pct follows from it.
  void set_least_ms(double milliseconds) { least_ms_ = milliseconds; }

  void set(Profiling profiling) { row_.profiling = profiling; }
  void set(Metric metric, double value) { row_[metric] = value; }
  /// Adds a scalar that the device may still be computing; the scalars of several micro-batches are summed. It is read
  /// when the record is submitted and must not be overwritten before.
  void add(Metric metric, const at::Tensor& scalar);
  /// Adds device time, which may still be running; both events must be recorded before the record is submitted.
  void add(Metric metric, std::shared_ptr<const EventSpan> span) { spans_.emplace_back(metric, std::move(span)); }
  /// Sets the current figures of the device's tensor memory; does nothing on a CPU whose tensors are not counted.
  void set_memory(c10::Device device);
  /// Sets these figures. On a CPU those that only a GPU has stay unmeasured.
  void set_memory(const MemoryStats& stats, bool of_cpu);
  /// Ends the step on the host: step_ms is the time since its start less `paused_ms` (evaluation, checkpoints), and
  /// samples_per_s and tokens_per_s follow from it. If AsyncReader::submit() waits for the device, it moves the end to
  /// after the wait, which is part of the step.
  void finish(double paused_ms = 0);

 private:
  friend class AsyncReader;
  StepRecord row_;
  std::optional<double> paused_ms_;  // set by finish()
  std::optional<double> least_ms_;
  std::vector<std::pair<Metric, at::Tensor>> scalars_;
  std::vector<std::pair<Metric, std::shared_ptr<const EventSpan>>> spans_;
};

}  // namespace trainopt
