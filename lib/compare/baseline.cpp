#include "compare/baseline.h"

#include "base/units.h"
#include "compare/output/comparison_text.h"
#include "compare/sampling/turn_taker.h"
#include "statistics/spread.h"
#include "statistics/verdict.h"

#include <vector>

namespace trainopt {
namespace {

NoiseFloor noise_floor(const WarmArm& a, const WarmArm& twin, const CompareOptions& options, Clock::time_point until,
                       const Observer& observer) {
  const std::vector<WarmArm> both{a, twin};
  TurnTaker turns(both, turn_steps(both, options.turn_s), ~options.seed);
  SequentialVerdict verdict({.level = options.level, .min_effect = options.min_effect, .seed = options.seed});
  std::vector<double> differences;
  while (verdict.measurements() < options.noise_blocks && Clock::now() < until && !observer.stopped()) {
    const Block block = block_of(turns.next(), 0, 1);
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

}  // namespace

WarmArm warm_up(std::string name, std::shared_ptr<Arm> arm, const CompareOptions& options) {
  Turn first = arm->turn(std::max<int64_t>(3, options.warmup_steps));  // the receipts are observed in the second step
  const ArmFacts facts = arm->facts();
  return {std::move(name), std::move(arm), std::move(first), facts.step_samples, facts.period};
}

Baseline make_baseline(WarmArm a, const std::function<std::shared_ptr<Arm>()>& make_twin, const CompareOptions& options,
                       Clock::time_point noise_until, const Observer& observer, Yardstick yardstick) {
  Baseline baseline{.a = std::move(a), .twin_folder = {}, .yardstick = yardstick, .twin_first_steps = {}, .noise = {}};
  if (!make_twin) return baseline;
  const WarmArm twin = warm_up("twin", make_twin(), options);
  baseline.twin_folder = twin.arm->folder();
  baseline.twin_first_steps = twin.first_steps;
  if (options.noise_blocks == 0) return baseline;
  baseline.noise = noise_floor(baseline.a, twin, options, noise_until, observer);
  if (baseline.noise->blocks < 2) {  // one block has no standard deviation
    baseline.noise.reset();
    return baseline;
  }
  observer.report(fmt::format("A against itself: {}, per-block standard deviation {:.1f} %",
                              percent_faster(baseline.noise->ratio, baseline.noise->interval),
                              baseline.noise->block_sd_pct));
  return baseline;
}

Numerics numbers(const Baseline& baseline, const WarmArm& b) {
  if (baseline.a.step_samples == b.step_samples)
    return compare_numbers({baseline.a.first_steps, baseline.a.arm->folder()}, {b.first_steps, b.arm->folder()},
                           {baseline.twin_first_steps, baseline.twin_folder}, baseline.yardstick);
  Numerics none;
  none.not_comparable = fmt::format("a step has {} in A and {} in B", counted(baseline.a.step_samples, "sample"),
                                    counted(b.step_samples, "sample"));
  return none;
}

}  // namespace trainopt
