#include "compare/comparison.h"

#include "base/counted.h"
#include "compare/comparison_text.h"
#include "compare/turn_taker.h"
#include "metrics/conditions.h"
#include "metrics/summary.h"
#include "statistics/spread.h"

#include <algorithm>

namespace trainopt {
namespace {

constexpr double kBusyPct = 10;  // of the allowed cores: others that take more are worth a word

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
