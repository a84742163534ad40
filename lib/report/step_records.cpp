#include "report/step_records.h"

#include <algorithm>
#include <cmath>

namespace trainopt::report {

StepRecords::StepRecords(size_t columns, std::function<bool(int64_t step)> measured)
    : measured_(std::move(measured)), metrics_(kMetricCount, Columns(columns)), rest_ms_(columns) {
  places_.fill(static_cast<size_t>(-1));
}

std::optional<double> StepRecords::value(const NumberLine& line, Metric metric) const {
  const size_t place = places_[static_cast<size_t>(metric)];
  return place < line.values.size() ? line.values[place] : std::nullopt;
}

std::optional<double> StepRecords::measured_mean(Metric metric) const {
  const auto i = static_cast<size_t>(metric);
  return counts_[i] ? std::optional(sums_[i] / static_cast<double>(counts_[i])) : std::nullopt;
}

void StepRecords::add(const NumberLine& line) {
  for (; names_seen_ < line.names.size(); ++names_seen_)
    for (const auto& metric : kCatalogue)
      if (metric.name == line.names[names_seen_]) places_[static_cast<size_t>(metric.metric)] = names_seen_;

  const auto step = value(line, Metric::step);
  if (!step || !(std::abs(*step) < 1e15)) return;  // a greater one is damage
  if (const auto& before = last(Metric::step); before && *step <= *before) {
    ++out_of_order_;
    return;
  }
  ++steps_;
  const bool measured = measured_(static_cast<int64_t>(*step));
  for (size_t metric = 0; metric < kMetricCount; ++metric) {
    const auto number = value(line, static_cast<Metric>(metric));
    if (!number) continue;
    metrics_[metric].add(*step, *number);
    last_[metric] = number;
    if (!measured || !std::isfinite(*number)) continue;
    sums_[metric] += *number;
    ++counts_[metric];
  }
  const auto step_ms = value(line, Metric::step_ms);
  if (step_ms && measured) step_times_.add(*step_ms);
  if (const auto update = value(line, Metric::update_ms); step_ms && update)
    rest_ms_.add(*step, std::max(0.0, *step_ms - *update - value(line, Metric::data_wait_ms).value_or(0) -
                                          value(line, Metric::forward_ms).value_or(0) -
                                          value(line, Metric::backward_ms).value_or(0)));
  if (const auto bits = static_cast<int64_t>(value(line, Metric::gpu_throttle).value_or(0)); bits != 0) {
    throttle_bits_ |= bits;
    ++throttled_steps_;
  }
}

}  // namespace trainopt::report
