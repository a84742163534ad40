#include "compare/comparison.h"

#include "base/units.h"
#include "compare/output/comparison_text.h"
#include "compare/output/remarks.h"
#include "metrics/summary.h"
#include "statistics/paired.h"

#include <cmath>

namespace trainopt {
namespace {

/// What the middle turns of the blocks say about carry-over: log of the second turn over the third, of B − A.
std::vector<double> middle_turns(const std::vector<Block>& blocks) {
  std::vector<double> differences;
  for (const Block& block : blocks) {
    const double second_over_third = std::log(block.turns[1].seconds / block.turns[2].seconds);
    differences.push_back(block.order == Order::abba ? second_over_third : -second_over_third);
  }
  return differences;
}

void report_progress(const Sampling& sampling, const SequentialVerdict& verdict, const Observer& observer) {
  observer.report(fmt::format("{}: {}, {}", counted(verdict.measurements(), sampling.own_processes ? "pair" : "block"),
                              percent_faster(verdict.ratio(), verdict.interval()),
                              verdict.decided() ? text(verdict.verdict()) : "undecided"));
}

}  // namespace

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

ArmResult result_of(const Sampling& sampling, size_t arm) {
  ArmResult result;
  result.name = sampling.names[arm];
  result.facts = sampling.facts[arm];
  double seconds = 0, waited = 0;
  int64_t samples = 0, tokens = 0;
  std::vector<double> step_ms;
  for (const Round& round : sampling.rounds)
    for (size_t i = 0; i < round.turns.size(); ++i) {
      if (round.arm_of(i) != arm) continue;
      const Turn& turn = round.turns[i];
      seconds += turn.seconds;
      waited += turn.data_wait_s;
      result.phases.add(turn.phases);
      samples += turn.samples;
      tokens += turn.tokens;
      step_ms.insert(step_ms.end(), turn.step_ms.begin(), turn.step_ms.end());
    }
  if (seconds > 0) {
    result.samples_per_s = static_cast<double>(samples) / seconds;
    if (tokens > 0) result.tokens_per_s = static_cast<double>(tokens) / seconds;
    result.data_wait_pct = 100 * waited / seconds;
  }
  if (!step_ms.empty()) result.step_ms_p50 = percentile(step_ms, 0.5);
  return result;
}

std::optional<double> price_per_million_samples(const ArmResult& arm) {
  if (!arm.facts.price_per_hour || arm.samples_per_s <= 0) return std::nullopt;
  return price_of_a_million_samples(*arm.facts.price_per_hour, arm.samples_per_s);
}

Comparison comparison_of(const Sampling& sampling, const CompareOptions& options,
                         const std::optional<NoiseFloor>& noise) {
  Comparison result = empty_comparison(options);
  result.noise = noise;
  result.own_processes = sampling.own_processes;
  result.longest_stall = sampling.longest_stall;
  result.seconds = sampling.seconds;
  result.ended = sampling.ended;
  result.failure = sampling.failure;
  result.failure_code = sampling.failure_code;
  result.blocks = blocks_of(sampling.rounds, 0, 1);
  result.a = result_of(sampling, 0);
  result.b = result_of(sampling, 1);
  judge_blocks(result);
  result.warnings = warnings_of(result);
  return result;
}

LookCallback report_and_keep(const std::function<Comparison(const Sampling&)>& comparison, const Observer& observer) {
  return [&](const Sampling& sampling, const PairVerdicts& verdicts) {
    report_progress(sampling, verdicts.of(0), observer);
    if (!sampling.ended.empty()) return;
    Sampling so_far = sampling;
    so_far.ended = "unfinished";
    observer.keep(comparison(so_far));
  };
}

Comparison compare(const Baseline& baseline, WarmArm b, const CompareOptions& options, Clock::time_point until,
                   const Observer& observer) {
  const std::vector<WarmArm> arms{baseline.a, std::move(b)};
  std::optional<Numerics> numerics;
  if (!baseline.twin_folder.empty()) numerics = numbers(baseline, arms[1]);
  const std::function<Comparison(const Sampling&)> comparison = [&](const Sampling& sampling) {
    Comparison result = comparison_of(sampling, options, baseline.noise);
    result.numerics = numerics;
    return result;
  };
  return comparison(sample_rounds(arms, options, until, observer, report_and_keep(comparison, observer)));
}

std::optional<CarryOver> carry_over(std::span<const double> differences, size_t arms, double level, uint64_t seed) {
  const auto of_mean = paired_interval(differences, level, seed);
  if (!of_mean) return std::nullopt;
  double mean = 0;
  for (const double difference : differences) mean += difference / static_cast<double>(differences.size());
  const auto n = static_cast<double>(arms);
  const double factor = -2 * (1 - (n + 1) / (2 * n * n));
  return CarryOver{.ratio = std::exp(factor * mean),
                   .interval = Interval{std::exp(factor * of_mean->high), std::exp(factor * of_mean->low)}};
}

void conclude(Comparison& c, const SequentialVerdict& verdict) {
  c.verdict = verdict.verdict();
  c.ratio = verdict.ratio();
  c.interval = verdict.interval();
  c.typical = verdict.typical_interval();
}

void judge_blocks(Comparison& c) {
  SequentialVerdict verdict = sequential_verdict(c, {});
  for (const Measurement& measurement : measurements_of(c.blocks, c.own_processes)) {
    const int looks = verdict.looks();
    verdict.add(measurement);
    if (verdict.looks() > looks) verdict.interval();  // as during sampling: matters if looks contradict each other
  }
  if (spends_the_rest(c.ended)) verdict.finish();
  conclude(c, verdict);
  c.carry_over = carry_over(middle_turns(c.blocks), 2, c.level, c.seed);
}

bool spends_the_rest(const std::string& ended) { return ended == "budget" || ended == "repeats"; }

}  // namespace trainopt
