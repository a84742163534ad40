#include "compare/comparison.h"

#include "base/counted.h"
#include "base/error.h"
#include "compare/comparison_text.h"
#include "device/process.h"
#include "metrics/conditions.h"
#include "metrics/other_load.h"
#include "metrics/summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trainopt {
namespace {

constexpr double kBusyPct = 10;  // of the allowed cores: others that take more are worth a word

/// Of the later half of the first steps, which has the fewer one-off costs.
double step_seconds(const Turn& first_steps) {
  const auto& all = first_steps.step_ms;
  std::vector<double> later(all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
  return percentile(later, 0.5) * 1e-3;
}

struct TurnSteps {
  int64_t a, b;
};

/// So many steps that both arms see the same samples, and the quicker arm's turn lasts `turn_s`. Where global batches
/// have no small common multiple, nearly as many samples.
TurnSteps turn_steps(const WarmArm& a, const WarmArm& b, double turn_s) {
  const int64_t of_a = a.step_samples, of_b = b.step_samples;
  const int64_t common = std::lcm(of_a, of_b);
  TurnSteps unit{common / of_a, common / of_b};
  if (unit.a > 64 || unit.b > 64)
    unit = of_a < of_b ? TurnSteps{std::max<int64_t>(1, (of_b + of_a / 2) / of_a), 1}
                       : TurnSteps{1, std::max<int64_t>(1, (of_a + of_b / 2) / of_b)};
  const double seconds = std::min(step_seconds(a.first_steps) * static_cast<double>(unit.a),
                                  step_seconds(b.first_steps) * static_cast<double>(unit.b));
  const auto units = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(turn_s / std::max(seconds, 1e-6))));
  return {unit.a * units, unit.b * units};
}

/// A block of turns, and what else the machine did meanwhile.
class TurnTaker {
 public:
  TurnTaker(Arm& a, Arm& b, TurnSteps steps, uint64_t seed) : a_(a), b_(b), steps_(steps), seed_(seed) {}

  Block next() {
    const auto busy_before = busy_seconds(cpus_);
    const double own_before = process_cpu_seconds();
    const auto began = Clock::now();
    Block block;
    block.order = block_order(seed_, number_++);
    double of_arms_processes = 0;
    for (size_t i = 0; i < block.turns.size(); ++i) {
      Arm& arm = block.is_a(i) ? a_ : b_;
      block.turns[i] = arm.turn(block.is_a(i) ? steps_.a : steps_.b);
      if (arm.has_own_process()) of_arms_processes += block.turns[i].cpu_s;
    }
    const double ours = process_cpu_seconds() - own_before + of_arms_processes,
                 cpu_seconds = seconds_since(began) * static_cast<double>(cpus_.size());
    if (const auto busy = busy_seconds(cpus_); busy && busy_before)
      block.other_load_pct = 100 * (*busy - *busy_before - ours) / cpu_seconds;
    return block;
  }

 private:
  Arm& a_;
  Arm& b_;
  TurnSteps steps_;
  uint64_t seed_;
  int64_t number_ = 0;
  std::vector<int> cpus_ = allowed_cpus();
};

double standard_deviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

NoiseFloor noise_floor(const WarmArm& a, const WarmArm& twin, const CompareOptions& options, Clock::time_point until,
                       const Observer& observer) {
  TurnTaker turns(*a.arm, *twin.arm, turn_steps(a, twin, options.turn_s), ~options.seed);
  SequentialVerdict verdict({.level = options.level, .min_effect = options.min_effect, .seed = options.seed});
  std::vector<double> differences;
  while (verdict.blocks() < options.noise_blocks && Clock::now() < until && !observer.stopped()) {
    differences.push_back(turns.next().log_ratio());
    verdict.add(differences.back());
  }
  if (differences.empty()) return {};
  verdict.finish();
  return {.ratio = verdict.ratio(),
          .interval = verdict.interval(),
          .block_sd_pct = 100 * standard_deviation(differences),
          .blocks = verdict.blocks()};
}

Numerics numbers(const Baseline& baseline, const WarmArm& b) {
  if (baseline.a.step_samples == b.step_samples)
    return compare_numbers({baseline.a.first_steps, baseline.a.arm->folder()}, {b.first_steps, b.arm->folder()},
                           {baseline.twin_first_steps, baseline.twin_folder});
  Numerics none;
  none.not_comparable = fmt::format("a step is {} in A and {} in B", counted(baseline.a.step_samples, "sample"),
                                    counted(b.step_samples, "sample"));
  return none;
}

/// A has met its twin before; B now sees the batches that A saw meanwhile, so that blocks are over the same ones.
void catch_up(const WarmArm& a, const WarmArm& b) {
  const int64_t behind =
      (a.arm->steps_taken() * a.step_samples - b.arm->steps_taken() * b.step_samples) / b.step_samples;
  if (behind > 0) b.arm->turn(behind);
}

ArmResult result_of(const WarmArm& warm, const std::vector<Block>& blocks, bool of_a) {
  ArmResult result;
  result.name = warm.name;
  result.facts = warm.arm->facts();
  double seconds = 0, waited = 0;
  int64_t samples = 0;
  std::vector<double> step_ms;
  for (const Block& block : blocks)
    for (size_t i = 0; i < block.turns.size(); ++i) {
      if (block.is_a(i) != of_a) continue;
      const Turn& turn = block.turns[i];
      seconds += turn.seconds;
      waited += turn.data_wait_s;
      samples += turn.samples;
      step_ms.insert(step_ms.end(), turn.step_ms.begin(), turn.step_ms.end());
    }
  if (seconds > 0) {
    result.samples_per_s = static_cast<double>(samples) / seconds;
    result.data_wait_pct = 100 * waited / seconds;
  }
  if (!step_ms.empty()) result.step_ms_p50 = percentile(step_ms, 0.5);
  return result;
}

std::vector<std::string> warnings_of(const Comparison& c, const CompareOptions& options) {
  std::vector<std::string> all;
  double busy = 0, known = 0;
  int64_t throttle = 0;
  for (const Block& block : c.blocks) {
    const double seconds = block.seconds(true) + block.seconds(false);
    if (block.other_load_pct) busy += *block.other_load_pct * seconds, known += seconds;
    for (const Turn& turn : block.turns) throttle |= turn.throttle.value_or(0);
  }
  if (busy > kBusyPct * known)
    all.push_back(fmt::format("other programs kept {:.0f} % of the allowed cores busy", busy / known));
  if (throttle != 0)
    all.push_back(fmt::format("the GPU's clock was held down in some turns: {}", throttle_reasons(throttle)));
  if (c.noise && c.noise->interval && !c.noise->interval->contains(1) &&
      judge(*c.noise->interval, options.min_effect) != Verdict::no_effect)
    all.push_back(fmt::format("A against itself already seemed to differ ({}): take a small effect with care",
                              percent_faster(*c.noise->interval)));
  if (c.verdict == Verdict::inconclusive && c.blocks.size() >= 2) {
    std::vector<double> differences;
    for (const Block& block : c.blocks) differences.push_back(block.log_ratio());
    const auto needed =
        blocks_needed(standard_deviation(differences), {.level = options.level, .min_effect = options.min_effect});
    if (needed > static_cast<int64_t>(c.blocks.size()))
      all.push_back(
          fmt::format("to decide about {:.1f} % either way on this machine takes about {} blocks; there were {}",
                      100 * options.min_effect, needed, c.blocks.size()));
  }
  return all;
}

void report_progress(const SequentialVerdict& verdict, const Observer& observer) {
  observer.report(fmt::format("{}: {}, {}", counted(verdict.blocks(), "block"),
                              percent_faster(verdict.ratio(), verdict.interval()), text(verdict.verdict())));
}

}  // namespace

WarmArm warm_up(std::string name, std::shared_ptr<Arm> arm, const CompareOptions& options) {
  Turn first = arm->turn(std::max<int64_t>(3, options.warmup_steps));  // the second step is observed for the receipts
  const int64_t step_samples = arm->facts().step_samples;
  return {std::move(name), std::move(arm), std::move(first), step_samples};
}

Baseline make_baseline(WarmArm a, const std::function<std::shared_ptr<Arm>()>& make_twin, const CompareOptions& options,
                       Clock::time_point noise_until, const Observer& observer) {
  Baseline baseline{.a = std::move(a), .twin_folder = {}, .twin_first_steps = {}, .noise = {}};
  if (!make_twin) return baseline;
  const WarmArm twin = warm_up("twin", make_twin(), options);
  baseline.twin_folder = twin.arm->folder();
  baseline.twin_first_steps = twin.first_steps;
  if (options.noise_blocks == 0) return baseline;
  baseline.noise = noise_floor(baseline.a, twin, options, noise_until, observer);
  if (baseline.noise->blocks < 2) {  // nothing scatters alone
    baseline.noise.reset();
    return baseline;
  }
  observer.report(fmt::format("A against itself: {}, one block scatters by {:.1f} %",
                              percent_faster(baseline.noise->ratio, baseline.noise->interval),
                              baseline.noise->block_sd_pct));
  return baseline;
}

Comparison compare(const Baseline& baseline, WarmArm b, const CompareOptions& options, Clock::time_point until,
                   const Observer& observer) {
  Comparison result;
  result.level = options.level;
  result.min_effect = options.min_effect;
  result.seed = options.seed;
  result.noise = baseline.noise;
  result.own_processes = b.arm->has_own_process();
  if (!baseline.twin_folder.empty()) result.numerics = numbers(baseline, b);

  catch_up(baseline.a, b);
  TurnTaker turns(*baseline.a.arm, *b.arm, turn_steps(baseline.a, b, options.turn_s), options.seed);
  SequentialVerdict verdict({.level = options.level, .min_effect = options.min_effect, .seed = options.seed});
  double block_s = 0;  // the longest so far: a block that would not end in time is not begun
  while (result.ended.empty()) {
    const auto began = Clock::now();
    result.blocks.push_back(turns.next());
    block_s = std::max(block_s, seconds_since(began));
    const auto before = verdict.interval();
    verdict.add(result.blocks.back().log_ratio());
    if (verdict.interval() != before) report_progress(verdict, observer);
    if (observer.stopped())
      result.ended = "stopped";
    else if (options.repeats)
      result.ended = verdict.blocks() >= *options.repeats ? "repeats" : "";
    else if (verdict.decided())
      result.ended = "decided";
    else if (after(block_s) > until)
      result.ended = "budget";
  }
  result.a = result_of(baseline.a, result.blocks, true);
  result.b = result_of(b, result.blocks, false);
  judge_blocks(result);
  result.warnings = warnings_of(result, options);
  return result;
}

void judge_blocks(Comparison& comparison) {
  SequentialVerdict verdict({.level = comparison.level, .min_effect = comparison.min_effect, .seed = comparison.seed});
  for (const Block& block : comparison.blocks) verdict.add(block.log_ratio());
  // What is left of the error budget is spent where time or blocks ran out; a decision came at a look, and whoever
  // stopped may have looked.
  if (comparison.ended == "budget" || comparison.ended == "repeats") verdict.finish();
  comparison.verdict = verdict.verdict();
  comparison.ratio = verdict.ratio();
  comparison.interval = verdict.interval();
}

}  // namespace trainopt
