// Two arms take turns until it is decided which is faster. This is what the program is for.
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
  double samples_per_s = 0, data_wait_pct = 0;  ///< over the measured blocks
  std::optional<double> step_ms_p50;
};

/// What the arms leave behind for the next turn (heat, a cold cache): each follows the other in 5 of 8 turns, so it
/// bears a part of what the other leaves.
struct CarryOver {
  double ratio = 1;  ///< the measured ratio over the one that the arms would have alone
  std::optional<Interval> interval;
};

struct Comparison {
  Verdict verdict = Verdict::inconclusive;
  double ratio = 1;  ///< B's throughput over A's, of total times
  std::optional<Interval>
      interval;                   ///< of it, valid at every moment the sampling might have ended; null: too few blocks
  std::optional<Interval> usual;  ///< the same in a usual block, whatever slow turns cost
  std::optional<CarryOver> carry_over;  ///< null: too few blocks
  double level = 0.95, min_effect = 0.01;
  double longest_stall = 9;  ///< in turns, that must not go unseen before the sampling ends
  uint64_t seed = 0;         ///< of the coins
  std::vector<Block> blocks;
  std::optional<NoiseFloor> noise;   ///< null in pairs of processes, which scatter by themselves
  std::optional<Numerics> numerics;  ///< null where they were not asked for
  ArmResult a, b;
  bool own_processes = false;  ///< then the pairs of processes are what is counted, not the blocks
  double seconds = 0;          ///< of the whole comparison
  std::string ended;           ///< why sampling ended: decided, precision, budget, repeats, stopped, failed
  std::string failure;         ///< where it ended because an arm failed: what the arm said
  ExitCode failure_code = ExitCode::done;
  std::vector<std::string> warnings;

  /// Turns of each arm.
  int64_t turns() const { return 2 * static_cast<int64_t>(blocks.size()); }
  /// Pairs of processes; 1 without.
  int64_t pairs() const { return blocks.empty() ? 0 : blocks.back().pair + 1; }
};

/// Lets A and B take turns in this process until the verdict is decided, `until` has come, or the observer stops it.
/// Throws what the arms throw.
Comparison compare(const Baseline& baseline, WarmArm b, const CompareOptions& options, Clock::time_point until,
                   const Observer& observer);

/// The longest stall that must not go unseen, in turns of `turn_s` seconds.
double longest_stall(double turn_s);
/// A comparison with nothing in it, but for what the options say.
Comparison empty_comparison(const CompareOptions& options);
/// What the sampling is judged by while it goes on.
SequentialVerdict sequential_verdict(const Comparison& comparison, std::optional<double> precision);
/// Why to end, or empty; `one_more`: when one more measurement would end.
std::string why_to_end(const SequentialVerdict& verdict, const CompareOptions& options, Clock::time_point one_more,
                       Clock::time_point until, const Observer& observer);
/// What the blocks say of an arm with these facts.
ArmResult result_of(std::string name, ArmFacts facts, const std::vector<Block>& blocks, bool of_a);
void report_progress(const Comparison& comparison, const SequentialVerdict& verdict, const Observer& observer);

/// Verdict, ratio, intervals and carry-over from the blocks, by the rule by which they were first judged.
void judge_blocks(Comparison& comparison);

}  // namespace trainopt
