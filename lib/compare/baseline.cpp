#include "compare/baseline.h"

#include "base/units.h"
#include "compare/output/comparison_text.h"
#include "compare/sampling/turn_taker.h"
#include "metrics/format.h"
#include "statistics/spread.h"
#include "statistics/verdict.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace trainopt {
namespace {

NoiseFloor noise_floor(const WarmArm& a, const WarmArm& twin, const CompareOptions& options, Clock::time_point until,
                       const Observer& observer) {
  const std::vector<WarmArm> both{a, twin};
  const std::vector<int64_t> steps = turn_steps(both, options.turn_s);
  TurnTaker turns(both, steps, ~options.seed);
  double block_s = 4 * turn_seconds(both, steps);  // the longest so far: one that would not end in time is not begun
  SequentialVerdict verdict({.level = options.level, .min_effect = options.min_effect, .seed = options.seed});
  std::vector<double> differences;
  while (verdict.measurements() < options.noise_blocks && after(block_s) < until && !observer.stopped()) {
    const auto began = Clock::now();
    observer.now(fmt::format("A against itself, block {} of {}", verdict.measurements() + 1, options.noise_blocks));
    const Round round = turns.next();
    if (round.ended_early) break;
    const Block block = block_of(round, 0, 1);
    block_s = std::max(block_s, seconds_since(began));
    differences.push_back(block.log_ratio());
    verdict.add(measurement_of({&block, 1}));
  }
  if (differences.empty()) return {};
  verdict.finish();
  return {.ratio = verdict.ratio(),
          .interval = verdict.interval(),
          .block_sd_pct = 100 * standard_deviation(differences),
          .blocks = verdict.measurements()};
}

// The receipts are observed in the second step; the weights change from the fifth on (gradient_steps()).
constexpr int64_t kFewestFirstSteps = 6;
constexpr size_t kFewestTwins = 3;  // fewer say too little of how far rounding goes

int64_t first_steps(const CompareOptions& options) { return std::max(kFewestFirstSteps, options.warmup_steps); }

WarmArm warm_arm(std::string name, std::shared_ptr<Arm> arm, Turn first) {
  const ArmFacts facts = arm->facts();
  return {std::move(name), std::move(arm), std::move(first), facts.step_samples, facts.period};
}

}  // namespace

WarmArm warm_up(std::string name, std::shared_ptr<Arm> arm, const CompareOptions& options) {
  Turn first = arm->turn(first_steps(options));
  return warm_arm(std::move(name), std::move(arm), std::move(first));
}

WarmUp::WarmUp(const CompareOptions& options, const TurnLimit& limit, int64_t arms, int64_t twins)
    : wanted_(first_steps(options)),
      limit_(limit),
      arms_(static_cast<double>(arms)),
      twins_(static_cast<double>(twins)) {
  if (!options.repeats) return;
  limit_.until = Clock::time_point::max();
  steps_ = wanted_;
}

WarmArm WarmUp::operator()(std::string name, const std::function<std::shared_ptr<Arm>()>& create) {
  return warm(std::move(name), create, limit_);
}

WarmArm WarmUp::warm(std::string name, const std::function<std::shared_ptr<Arm>()>& create, const TurnLimit& limit) {
  const auto began = Clock::now();
  std::shared_ptr<Arm> arm = create();
  arm->limit_turns(limit);
  Turn first = steps_ ? arm->turn(*steps_) : probe(*arm, seconds_since(began));
  return warm_arm(std::move(name), std::move(arm), std::move(first));
}

std::optional<WarmArm> WarmUp::twin(std::string name, const std::function<std::shared_ptr<Arm>()>& create,
                                    Clock::time_point until) {
  TurnLimit limit = limit_;
  if (limit_.until != Clock::time_point::max()) limit.until = std::min(limit_.until, until);
  auto twin = std::optional(warm(std::move(name), create, limit));
  if (!steps_ || twin->first_steps.steps < *steps_) twin.reset();
  return twin;
}

Turn WarmUp::probe(Arm& arm, double start_s) {
  Turn first = arm.turn(1);  // which also builds and compiles, so it says little of the others
  if (limit_.is_stopped()) return first;
  if (Clock::now() > limit_.until) require_time(1, first.seconds, start_s);
  const Turn second = arm.turn(1);
  require_time(2, second.seconds, start_s);
  const double half_s = (-seconds_since(limit_.until) - kGraceS) / 2, all = arms_ + twins_;
  const double steps = (half_s - (all - 1) * start_s) / second.seconds / all;
  steps_ =
      static_cast<int64_t>(std::clamp(steps, static_cast<double>(kFewestFirstSteps), static_cast<double>(wanted_)));
  first = joined(std::move(first), second);
  return joined(std::move(first), arm.turn(*steps_ - 2));
}

/// There must be time for the rest of this arm's fewest steps, the others and theirs, and a round of one step each.
void WarmUp::require_time(int64_t taken, double step_s, double start_s) const {
  const double steps = arms_ * static_cast<double>(kFewestFirstSteps + 1) - static_cast<double>(taken);
  const double needed_s = steps * step_s + (arms_ - 1) * start_s;
  if (limit_.is_stopped() || needed_s <= -seconds_since(limit_.until)) return;
  throw BudgetTooShort(fmt::format(
      "the budget is too short: a step takes {}, and the {} first steps of each arm and a round of turns would take "
      "about {} more; nothing was compared",
      human_seconds(step_s), kFewestFirstSteps, human_seconds(needed_s)));
}

void require_rounds(size_t rounds, const Observer& observer) {
  if (rounds == 0 && !observer.stopped())
    throw BudgetTooShort(
        "the budget is too short: it ended before every arm had taken its first steps and a turn; nothing was "
        "compared; try one several times as long");
}

Baseline make_baseline(WarmArm a, const MakeTwin& make_twin, const CompareOptions& options, Clock::time_point until,
                       const Observer& observer, Yardstick yardstick) {
  Baseline baseline{.a = std::move(a), .twins = {.yardstick = yardstick}, .noise = {}};
  if (!make_twin) return baseline;
  baseline.twins.wanted = options.twins;
  std::optional<WarmArm> twin;
  double twin_s = baseline.a.first_steps.seconds;  // the longest so far
  for (int64_t number = 0; number < options.twins; ++number) {
    // The budget does not end a given number of repeats.
    if ((after(twin_s) > until && !options.repeats) || observer.stopped()) break;
    observer.report(fmt::format("first steps of twin {} of {}", number + 1, options.twins));
    twin.reset();
    const auto began = Clock::now();
    twin = make_twin(number);
    if (!twin) break;
    twin_s = std::max(twin_s, seconds_since(began));
    baseline.twins.first_turns.push_back({twin->first_steps, twin->arm->folder()});
  }
  if (twin && options.noise_blocks > 0) baseline.noise = noise_floor(baseline.a, *twin, options, until, observer);
  if (baseline.noise && baseline.noise->blocks < 2) baseline.noise.reset();  // one block has no standard deviation
  if (baseline.noise)
    observer.report(fmt::format("A against itself: {}, per-block standard deviation {:.1f} %",
                                percent_faster(baseline.noise->ratio, baseline.noise->interval),
                                baseline.noise->block_sd_pct));
  return baseline;
}

Numerics compare_with_twins(const Twins& twins, const WarmArm& a, const WarmArm& b) {
  Numerics none;
  if (a.step_samples != b.step_samples)
    none.not_comparable = fmt::format("a step has {} in A and {} in B", counted(a.step_samples, "sample"),
                                      counted(b.step_samples, "sample"));
  else if (a.first_steps.steps != b.first_steps.steps ||
           (!twins.first_turns.empty() && twins.first_turns.front().turn.steps != a.first_steps.steps))
    none.not_comparable = "the budget ended during an arm's first steps";
  else if (twins.first_turns.size() < kFewestTwins) {
    none.too_few_twins = true;
    none.not_comparable = fmt::format(
        "{} of the {} of A that show {} were trained in the time for them; a larger --budget compares the numbers",
        twins.first_turns.empty() ? "none" : fmt::format("only {}", twins.first_turns.size()),
        counted(twins.wanted, "twin"),
        twins.yardstick == Yardstick::perturbed ? "how far rounding goes" : "what another seed changes");
  }
  if (!none.not_comparable.empty()) return none;
  std::vector<FirstSteps> first_steps;
  for (const auto& [turn, folder] : twins.first_turns) first_steps.push_back({turn, folder});
  return compare_numbers({a.first_steps, a.arm->folder()}, {b.first_steps, b.arm->folder()}, first_steps,
                         twins.yardstick);
}

}  // namespace trainopt
