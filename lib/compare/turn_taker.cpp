#include "compare/turn_taker.h"

#include "device/process.h"
#include "metrics/other_load.h"
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

TurnSteps turn_steps(const WarmArm& a, const WarmArm& b, double turn_s) {
  const int64_t of_a = a.step_samples, of_b = b.step_samples;
  const int64_t common = std::lcm(of_a, of_b);
  TurnSteps unit{common / of_a, common / of_b};
  if (unit.a > 64 || unit.b > 64)
    unit = of_a < of_b ? TurnSteps{std::max<int64_t>(1, (of_b + of_a / 2) / of_a), 1}
                       : TurnSteps{1, std::max<int64_t>(1, (of_a + of_b / 2) / of_b)};
  const auto units = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(turn_s / turn_seconds(a, b, unit))));
  return {unit.a * units, unit.b * units};
}

double turn_seconds(const WarmArm& a, const WarmArm& b, TurnSteps steps) {
  return std::max(1e-6, std::min(step_seconds(a.first_steps) * static_cast<double>(steps.a),
                                 step_seconds(b.first_steps) * static_cast<double>(steps.b)));
}

TurnTaker::TurnTaker(Arm& a, Arm& b, TurnSteps steps, uint64_t seed)
    : a_(a), b_(b), steps_(steps), seed_(seed), cpus_(allowed_cpus()) {}

Block TurnTaker::next() {
  const auto busy_before = busy_seconds(cpus_);
  const double own_before = process_cpu_seconds();
  const auto began = Clock::now();
  Block block;
  block.order = block_order(seed_, number_++);
  double of_arms_processes = 0;
  for (size_t i = 0; i < block.turns.size(); ++i) {
    Arm& arm = block.is_a(i) ? a_ : b_;
    block.turns[i] = arm.turn(block.is_a(i) ? steps_.a : steps_.b);
    of_arms_processes += block.turns[i].cpu_outside_s;
  }
  const double ours = process_cpu_seconds() - own_before + of_arms_processes,
               cpu_seconds = seconds_since(began) * static_cast<double>(cpus_.size());
  if (const auto busy = busy_seconds(cpus_); busy && busy_before)
    block.other_load_pct = 100 * (*busy - *busy_before - ours) / cpu_seconds;
  return block;
}

}  // namespace trainopt
