#include "train/optimizer/schedule.h"

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace trainopt {
namespace {

using ScheduleValues = Schedule::Values;

/// What a schedule computes from.
struct Position {
  int64_t n;       ///< counts since its beginning, from 0
  int64_t length;  ///< counts to its end
  double base;     ///< learning rate of the recipe

  double count() const { return static_cast<double>(n); }
  /// The share of a schedule with an end that has passed: from 0 to 1.
  double part() const { return std::min(1.0, count() / static_cast<double>(std::max<int64_t>(1, length))); }
};

/// Falls from 1 at part 0 to 0 at part 1.
double half_cosine(double part) { return 0.5 * (1.0 + std::cos(std::numbers::pi * part)); }

double between(double start, double end, double part, AnnealStrategy strategy) {
  return strategy == AnnealStrategy::cos ? end + (start - end) * half_cosine(part) : start + (end - start) * part;
}

double whole_power(double base, int64_t exponent) { return std::pow(base, static_cast<double>(exponent)); }

ScheduleValues values_of(const ConstantSchedule&, const Position& at) { return {at.base, {}}; }

ScheduleValues values_of(const LinearSchedule&, const Position& at) { return {at.base * (1 - at.part()), {}}; }

ScheduleValues values_of(const CosineSchedule& c, const Position& at) {
  return {c.eta_min + (at.base - c.eta_min) * half_cosine(at.part()), {}};
}

ScheduleValues values_of(const PolynomialSchedule& c, const Position& at) {
  return {at.base * std::pow(1 - at.part(), c.power), {}};
}

/// One part of a one-cycle schedule: from the end of the part before it.
struct Phase {
  double end, first_rate, last_rate, first_momentum, last_momentum;  ///< end: in counts
};

std::vector<Phase> phases_of(const OneCycleSchedule& c, double base, int64_t length) {
  const double highest = c.max_lr.value_or(base), first = highest / c.div_factor, last = first / c.final_div_factor;
  const double rise = c.pct_start * static_cast<double>(length), end = static_cast<double>(length - 1);
  const auto& [cycled, low, high] = c.momentum;
  if (c.three_phase)
    return {{rise - 1, first, highest, high, low},
            {2 * rise - 2, highest, first, low, high},
            {end, first, last, high, high}};
  return {{rise - 1, first, highest, high, low}, {end, highest, last, low, high}};
}

ScheduleValues values_of(const OneCycleSchedule& c, const Position& at) {
  const double n = std::min(at.count(), static_cast<double>(at.length - 1));
  double start = 0;
  const auto phases = phases_of(c, at.base, at.length);
  for (const Phase& phase : phases) {
    if (n <= phase.end || &phase == &phases.back()) {
      const double part = (n - start) / (phase.end - start);
      return {between(phase.first_rate, phase.last_rate, part, c.anneal_strategy),
              between(phase.first_momentum, phase.last_momentum, part, c.anneal_strategy)};
    }
    start = phase.end;
  }
  return {at.base, {}};
}

ScheduleValues values_of(const CyclicSchedule& c, const Position& at) {
  const double highest = c.max_lr.value_or(at.base), lowest = c.base_lr.value_or(highest / 4);
  const int64_t length = c.step_size_up + c.step_size_down.value_or(c.step_size_up), place = at.n % length;
  const double rise = place <= c.step_size_up
                          ? static_cast<double>(place) / static_cast<double>(c.step_size_up)
                          : static_cast<double>(length - place) / static_cast<double>(length - c.step_size_up);
  double height = rise;
  if (c.mode == CyclicMode::triangular2) height *= whole_power(0.5, at.n / length);
  if (c.mode == CyclicMode::exp_range) height *= whole_power(c.gamma, at.n);
  return {lowest + (highest - lowest) * height,
          c.momentum.max_momentum - (c.momentum.max_momentum - c.momentum.base_momentum) * height};
}

ScheduleValues values_of(const StepSchedule& c, const Position& at) {
  return {at.base * whole_power(c.gamma, at.n / c.step_size), {}};
}

ScheduleValues values_of(const MultiStepSchedule& c, const Position& at) {
  const auto passed = std::count_if(c.milestones.begin(), c.milestones.end(), [&](int64_t one) { return one <= at.n; });
  return {at.base * whole_power(c.gamma, passed), {}};
}

ScheduleValues values_of(const ExponentialSchedule& c, const Position& at) {
  return {at.base * whole_power(c.gamma, at.n), {}};
}

ScheduleValues values_of(const CosineRestartsSchedule& c, const Position& at) {
  int64_t place = at.n, period = c.t_0;
  if (c.t_mult == 1) {
    place %= period;
  } else {
    while (place >= period) {
      place -= period;
      period *= c.t_mult;
    }
  }
  const double part = static_cast<double>(place) / static_cast<double>(period);
  return {c.eta_min + (at.base - c.eta_min) * half_cosine(part), {}};
}

ScheduleValues values_of(const InverseSqrtSchedule& c, const Position& at) {
  return {at.base / std::sqrt(1 + at.count() / static_cast<double>(c.timescale.value())), {}};
}

int64_t decay_of(const WsdSchedule& c, int64_t length) {
  return c.num_decay_steps.value_or(std::max<int64_t>(1, length / 10));
}

ScheduleValues values_of(const WsdSchedule& c, const Position& at) {
  const int64_t decay = decay_of(c, at.length), begin = at.length - decay;
  if (at.n < begin) return {at.base, {}};
  const double part = std::min(1.0, static_cast<double>(at.n - begin) / static_cast<double>(decay));
  const double left = c.decay_type == DecayType::cosine   ? half_cosine(part)
                      : c.decay_type == DecayType::linear ? 1 - part
                                                          : 1 - std::sqrt(part);
  return {at.base * (c.min_lr_ratio + (1 - c.min_lr_ratio) * left), {}};
}

/// Throws UserError if a phase of the schedule has no room in `length` counts.
void require_room(const SchedulerConfig& config, int64_t length, int64_t total) {
  const bool has_phases =
      std::holds_alternative<OneCycleSchedule>(config.schedule) || std::holds_alternative<WsdSchedule>(config.schedule);
  if (has_phases && length < 1)
    throw UserError(fmt::format("scheduler.warmup_steps: the warm-up leaves nothing for {}: {} of {} steps",
                                name_of(config), config.warmup_steps, total));
  if (const auto* c = std::get_if<OneCycleSchedule>(&config.schedule)) {
    const double rise = c->pct_start * static_cast<double>(length);
    const double before_last = c->three_phase ? 2 * rise - 2 : rise - 1;
    if (rise - 1 <= 0 || before_last >= static_cast<double>(length - 1))
      throw UserError(fmt::format("scheduler.pct_start: {} of {} counts leave no room for {} phases", c->pct_start,
                                  length, c->three_phase ? "three" : "two"));
  }
  if (const auto* c = std::get_if<WsdSchedule>(&config.schedule); c && decay_of(*c, length) > length)
    throw UserError(fmt::format("scheduler.num_decay_steps: the decay is longer than what the warm-up leaves: {}, {}",
                                decay_of(*c, length), length));
}

}  // namespace

Schedule::Schedule(const SchedulerConfig& config, double base_learning_rate, int64_t total_steps,
                   int64_t steps_per_epoch)
    : config_(config), base_(base_learning_rate) {
  const bool by_epoch = config.interval == ScheduleInterval::epoch;
  period_ = by_epoch ? steps_per_epoch : 1;
  length_ = by_epoch ? (total_steps + period_ - 1) / period_ : total_steps - config.warmup_steps;
  if (auto* inverse = std::get_if<InverseSqrtSchedule>(&config_.schedule); inverse && !inverse->timescale)
    inverse->timescale = ((config.warmup_steps > 0 ? config.warmup_steps : 10'000) + period_ - 1) / period_;
  require_room(config_, length_, total_steps);
}

Schedule::Values Schedule::at(int64_t step) const {
  const int64_t done = step - 1, warmup = config_.warmup_steps;
  // Epochs are those of the run, whether or not it warms up; steps are counted from the end of the warm-up.
  const int64_t n = config_.interval == ScheduleInterval::epoch ? done / period_ : std::max<int64_t>(0, done - warmup);
  const Position position{n, length_, base_};
  ScheduleValues values =
      std::visit([&](const auto& schedule) { return values_of(schedule, position); }, config_.schedule);
  if (!cycled_momentum(config_)) values.momentum.reset();
  if (done < warmup) values.learning_rate *= static_cast<double>(done) / static_cast<double>(warmup);
  if (!(std::abs(values.learning_rate) <= std::numeric_limits<float>::max()))
    throw UserError(fmt::format("the scheduler's learning rate of step {} is not a number that float32 can hold: {:g}",
                                step, values.learning_rate),
                    ExitCode::diverged);
  return values;
}

}  // namespace trainopt
