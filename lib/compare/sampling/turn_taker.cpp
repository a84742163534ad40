#include "compare/sampling/turn_taker.h"

#include "device/process.h"
#include "metrics/hardware/process_probe.h"
#include "metrics/summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trainopt {
namespace {

/// Median over the later half of the first steps, which has fewer one-off costs.
double step_seconds(const Turn& first_steps) {
  const auto& all = first_steps.step_ms;
  std::vector<double> later(all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
  return percentile(later, 0.5) * 1e-3;
}

}  // namespace

std::vector<int64_t> turn_steps(std::span<const WarmArm> arms, double turn_s) {
  constexpr int64_t kMostSteps = 64;  // most steps of one arm, for an exact common multiple
  int64_t smallest = arms[0].step_samples, largest = smallest, common = 1;
  for (const WarmArm& arm : arms) {
    smallest = std::min(smallest, arm.step_samples);
    largest = std::max(largest, arm.step_samples);
    if (common <= kMostSteps * smallest) common = std::lcm(common, arm.step_samples);
  }
  const bool exact = common <= kMostSteps * smallest;
  std::vector<int64_t> steps;
  for (const WarmArm& arm : arms)
    steps.push_back(exact ? common / arm.step_samples
                          : std::max<int64_t>(1, (largest + arm.step_samples / 2) / arm.step_samples));
  int64_t whole = 1;
  for (size_t i = 0; i < arms.size(); ++i) whole = std::lcm(whole, arms[i].period / std::gcd(arms[i].period, steps[i]));
  const double turns = turn_s / turn_seconds(arms, steps) / static_cast<double>(whole);
  const int64_t units = whole * std::max<int64_t>(1, static_cast<int64_t>(std::ceil(turns)));
  for (int64_t& of_arm : steps) of_arm *= units;
  return steps;
}

double turn_seconds(std::span<const WarmArm> arms, std::span<const int64_t> steps) {
  double shortest = INFINITY;
  for (size_t i = 0; i < arms.size(); ++i)
    shortest = std::min(shortest, step_seconds(arms[i].first_steps) * static_cast<double>(steps[i]));
  return std::max(1e-6, shortest);
}

void catch_up(std::span<const WarmArm> arms) {
  int64_t furthest = 0;
  for (const WarmArm& arm : arms) furthest = std::max(furthest, arm.arm->steps_taken() * arm.step_samples);
  for (const WarmArm& arm : arms)
    if (const int64_t behind = furthest / arm.step_samples - arm.arm->steps_taken(); behind > 0) arm.arm->turn(behind);
}

TurnTaker::TurnTaker(std::span<const WarmArm> arms, std::vector<int64_t> steps, uint64_t seed)
    : steps_(std::move(steps)), seed_(seed), cpus_(allowed_cpus()) {
  for (const WarmArm& arm : arms) arms_.push_back(arm.arm);
}

Round TurnTaker::next() {
  const auto busy_before = busy_seconds(cpus_);
  const double own_before = process_cpu_seconds();
  const auto began = Clock::now();
  Round round;
  round.order = turn_order(seed_, number_++, arms_.size());
  double of_arms_processes = 0;
  for (size_t i = 0; i < 2 * arms_.size() && !round.ended_early; ++i) {
    const size_t arm = round.arm_of(i);
    round.turns.push_back(arms_[arm]->turn(steps_[arm]));
    round.ended_early = round.turns.back().steps < steps_[arm];
    of_arms_processes += round.turns.back().cpu_outside_s;
  }
  const double ours = process_cpu_seconds() - own_before + of_arms_processes,
               cpu_seconds = seconds_since(began) * static_cast<double>(cpus_.size());
  if (const auto busy = busy_seconds(cpus_); busy && busy_before)
    round.other_load_pct = 100 * (*busy - *busy_before - ours) / cpu_seconds;
  return round;
}

}  // namespace trainopt
