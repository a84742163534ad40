#include "compare/comparison.h"

#include "base/counted.h"
#include "compare/comparison_text.h"
#include "compare/comparison_warnings.h"
#include "compare/turn_taker.h"
#include "metrics/summary.h"
#include "statistics/paired.h"

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

/// A is ahead because it has taken turns with its twin. Trains B up to A's position, so that both see the same batches
/// in every block.
void catch_up(const WarmArm& a, const WarmArm& b) {
  const int64_t behind =
      (a.arm->steps_taken() * a.step_samples - b.arm->steps_taken() * b.step_samples) / b.step_samples;
  if (behind > 0) b.arm->turn(behind);
}

/// In A B B A the second turn is B after A and the third is B after B; in B A A B the arms swap. Let h_A and h_B be
/// what A and B add to the log time of the next turn. Then the differences have the mean h_A − h_B. A drift adds the
/// same to both orders, and the coin toss removes it. Running alone, A would always follow A, and B always B. Here each
/// follows the other in 5 of 8 turns, so the measured log T_A / T_B is 5/4·(h_B − h_A) above that.
std::optional<CarryOver> carry_over(const Comparison& c) {
  std::vector<double> differences;
  for (const Block& block : c.blocks) {
    const double second_over_third = std::log(block.turns[1].seconds / block.turns[2].seconds);
    differences.push_back(block.order == Order::abba ? second_over_third : -second_over_third);
  }
  const auto of_mean = paired_interval(differences, c.level, c.seed);
  if (!of_mean) return std::nullopt;
  double mean = 0;
  for (const double difference : differences) mean += difference / static_cast<double>(differences.size());
  return CarryOver{.ratio = std::exp(-1.25 * mean),
                   .interval = Interval{std::exp(-1.25 * of_mean->high), std::exp(-1.25 * of_mean->low)}};
}

}  // namespace

double longest_stall(double turn_s) {
  // A page-cache write or a pause of the clock may take 2.25 s; if turns are short, nine turns are assumed.
  constexpr double kStallSeconds = 2.25, kStallTurns = 9;
  return std::min(kStallTurns, kStallSeconds / turn_s);
}

Comparison empty_comparison(const CompareOptions& options) {
  Comparison empty;
  empty.level = options.level;
  empty.min_effect = options.min_effect;
  empty.seed = options.seed;
  return empty;
}

SequentialVerdict sequential_verdict(const Comparison& c, std::optional<double> precision) {
  return SequentialVerdict({.level = c.level,
                            .min_effect = c.min_effect,
                            .precision = precision,
                            .longest_stall = c.longest_stall,
                            .seed = c.seed});
}

std::string stop_reason(const SequentialVerdict& verdict, const CompareOptions& options, Clock::time_point one_more,
                        Clock::time_point until, const Observer& observer) {
  if (observer.stopped()) return "stopped";
  if (options.repeats) return verdict.measurements() >= *options.repeats ? "repeats" : "";
  if (verdict.decided() && (!options.boundary || verdict.settles(*options.boundary)))
    return options.precision ? "precision" : "decided";
  return one_more > until ? "budget" : "";
}

ArmResult result_of(std::string name, ArmFacts facts, const std::vector<Block>& blocks, bool of_a) {
  ArmResult result;
  result.name = std::move(name);
  result.facts = std::move(facts);
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

void report_progress(const Comparison& c, const SequentialVerdict& verdict, const Observer& observer) {
  observer.report(fmt::format("{}: {}, {}", counted(verdict.measurements(), c.own_processes ? "pair" : "block"),
                              percent_faster(verdict.ratio(), verdict.interval()),
                              verdict.decided() ? text(verdict.verdict()) : "undecided"));
}

Comparison compare(const Baseline& baseline, WarmArm b, const CompareOptions& options, Clock::time_point until,
                   const Observer& observer) {
  const WarmArm& a = baseline.a;
  const auto comparison_began = Clock::now();
  Comparison result = empty_comparison(options);
  result.noise = baseline.noise;
  if (!baseline.twin_folder.empty()) result.numerics = numbers(baseline, b);

  catch_up(a, b);
  const TurnSteps steps = turn_steps(a, b, options.turn_s);
  result.longest_stall = longest_stall(turn_seconds(a, b, steps));
  TurnTaker turns(*a.arm, *b.arm, steps, options.seed);
  SequentialVerdict verdict = sequential_verdict(result, options.precision);
  double block_s = 0;  // the longest so far: a block that would not end in time is not started
  for (int looks = 0; result.ended.empty();) {
    const auto began = Clock::now();
    result.blocks.push_back(turns.next());
    verdict.add(measurement_of(std::span(result.blocks).last(1)));
    block_s = std::max(block_s, seconds_since(began));
    result.ended = stop_reason(verdict, options, after(block_s), until, observer);
    if (verdict.looks() > looks) report_progress(result, verdict, observer);
    looks = verdict.looks();
  }
  result.a = result_of(a.name, a.arm->facts(), result.blocks, true);
  result.b = result_of(b.name, b.arm->facts(), result.blocks, false);
  judge_blocks(result);
  result.seconds = seconds_since(comparison_began);
  result.warnings = warnings_of(result);
  return result;
}

void judge_blocks(Comparison& c) {
  SequentialVerdict verdict = sequential_verdict(c, {});
  for (const Measurement& measurement : measurements_of(c.blocks, c.own_processes)) {
    const int looks = verdict.looks();
    verdict.add(measurement);
    if (verdict.looks() > looks) verdict.interval();  // as during sampling: matters if looks contradict each other
  }
  // The rest of the error budget is spent only if time or blocks ran out. A decision came at a regular look, and a user
  // who stopped the comparison may have done so because of the results.
  if (c.ended == "budget" || c.ended == "repeats") verdict.finish();
  c.verdict = verdict.verdict();
  c.ratio = verdict.ratio();
  c.interval = verdict.interval();
  c.typical = verdict.typical_interval();
  c.carry_over = carry_over(c);
}

}  // namespace trainopt
