// What the page draws of metrics.jsonl: every column of the record over the steps, and how long the steps took.
#pragma once

#include "metrics/catalogue.h"
#include "report/columns.h"
#include "report/figures.h"
#include "report/lines.h"

#include <array>
#include <functional>
#include <optional>
#include <vector>

namespace trainopt::report {

class StepRecords {
 public:
  /// `columns`: of each series. `measured`: whether a step counts in the distribution of step times.
  StepRecords(size_t columns, std::function<bool(int64_t step)> measured);

  void add(const NumberLine& line);

  /// The metric's values by step.
  const Columns& of(Metric metric) const { return metrics_[static_cast<size_t>(metric)]; }
  /// Part of step_ms outside the loader, the forward and backward passes and the update. Empty if these are not
  /// measured.
  const Columns& rest_ms() const { return rest_ms_; }
  const TimeHistogram& step_times() const { return step_times_; }
  const std::optional<double>& last(Metric metric) const { return last_[static_cast<size_t>(metric)]; }
  /// Mean over the recorded steps that are measured; nullopt if none has a value.
  std::optional<double> measured_mean(Metric metric) const;
  /// The bits of all gpu_throttle together.
  int64_t throttle_bits() const { return throttle_bits_; }
  int64_t throttled_steps() const { return throttled_steps_; }
  int64_t steps() const { return steps_; }                ///< recorded
  int64_t out_of_order() const { return out_of_order_; }  ///< left out: not later than the step before

 private:
  std::optional<double> value(const NumberLine& line, Metric metric) const;

  std::function<bool(int64_t)> measured_;
  std::vector<Columns> metrics_;
  std::array<std::optional<double>, kMetricCount> last_;
  std::array<double, kMetricCount> sums_{};  ///< sums over measured steps, finite values only
  std::array<int64_t, kMetricCount> counts_{};
  std::array<size_t, kMetricCount> places_;  ///< each metric's place in a line
  size_t names_seen_ = 0;
  Columns rest_ms_;
  TimeHistogram step_times_;
  int64_t throttle_bits_ = 0, throttled_steps_ = 0, steps_ = 0, out_of_order_ = 0;
};

}  // namespace trainopt::report
