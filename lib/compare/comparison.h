// A comparison: two arms take turns until it is decided which is faster.
#pragma once

#include "compare/baseline.h"
#include "statistics/interval.h"
#include "statistics/verdict.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt {

struct ArmResult {
  std::string name;
  ArmFacts facts;
  Json recipe;                                  ///< the effective one; null: an earlier version did not store it
  double samples_per_s = 0, data_wait_pct = 0;  ///< over the measured blocks
  std::optional<double> step_ms_p50;
};

/// Carry-over: what an arm leaves behind for the next turn (heat, a cold cache). Each arm follows the other in 5 of 8
/// turns, so it is charged with a part of what the other leaves.
struct CarryOver {
  double ratio = 1;  ///< the measured ratio divided by the ratio without carry-over between the arms
  std::optional<Interval> interval;
};

struct Comparison {
  Verdict verdict = Verdict::inconclusive;
  double ratio = 1;                  ///< of B's throughput to A's, from total times
  std::optional<Interval> interval;  ///< of the ratio, valid whenever sampling might have ended; null: too few blocks
  std::optional<Interval> typical;   ///< of the ratio in a typical block, hardly affected by slow turns
  std::optional<CarryOver> carry_over;  ///< null: too few blocks
  double level = 0.95, min_effect = 0.01;
  double longest_stall = 9;  ///< longest stall, in turns, that must not go undetected before sampling ends
  uint64_t seed = 0;         ///< of the coin tosses
  std::vector<Block> blocks;
  std::optional<NoiseFloor> noise;   ///< null in pairs of processes, which show their own variation
  std::optional<Numerics> numerics;  ///< null if not requested
  ArmResult a, b;
  bool own_processes = false;  ///< if true, a measurement is a pair of processes, not a block
  double seconds = 0;          ///< of the whole comparison
  std::string ended;           ///< why sampling ended: decided, precision, budget, repeats, stopped, failed
  std::string failure;         ///< the arm's message, if sampling ended because an arm failed
  ExitCode failure_code = ExitCode::done;
  std::vector<std::string> warnings;

  /// Turns of each arm.
  int64_t turns() const { return 2 * static_cast<int64_t>(blocks.size()); }
  /// Pairs of processes; 1 if the arms share a process.
  int64_t pairs() const { return blocks.empty() ? 0 : blocks.back().pair + 1; }
};

/// Lets A and B take turns in this process until the verdict is decided, `until` is reached, or the observer stops it.
/// Throws what the arms throw.
Comparison compare(const Baseline& baseline, WarmArm b, const CompareOptions& options, Clock::time_point until,
                   const Observer& observer);

/// The longest stall that must not go undetected, in turns of `turn_s` seconds.
double longest_stall(double turn_s);
/// A comparison without results; only the options are filled in.
Comparison empty_comparison(const CompareOptions& options);
/// The sequential verdict that judges a comparison while it is sampled.
SequentialVerdict sequential_verdict(const Comparison& comparison, std::optional<double> precision);
/// Why to end sampling, or empty; `one_more`: when one more measurement would end.
std::string stop_reason(const SequentialVerdict& verdict, const CompareOptions& options, Clock::time_point one_more,
                        Clock::time_point until, const Observer& observer);
/// The result of one arm, from its facts and the blocks.
ArmResult result_of(std::string name, ArmFacts facts, const std::vector<Block>& blocks, bool of_a);
void report_progress(const Comparison& comparison, const SequentialVerdict& verdict, const Observer& observer);

/// Computes verdict, ratio, intervals and carry-over from the blocks, by the rule that applied during sampling.
void judge_blocks(Comparison& comparison);

}  // namespace trainopt
