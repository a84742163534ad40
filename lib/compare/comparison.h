// A comparison: two or more arms take turns until it is decided which is faster. Every pair of them is compared, and
// all conclusions hold together.
#pragma once

#include "compare/sampling/sampling.h"
#include "statistics/spread.h"
#include "statistics/verdict.h"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trainopt {

struct ArmResult {
  std::string name;
  ArmFacts facts;
  Json recipe;                                  ///< the effective one; null: not stored
  double samples_per_s = 0, data_wait_pct = 0;  ///< means over the measured blocks
  std::optional<double> tokens_per_s;           ///< mean over the measured blocks; null for images
  std::optional<double> step_ms_p50;
  PhaseSums phases;  ///< sums over the measured blocks; with several ranks, rank 0's
};

/// What a million samples cost at the arm's throughput; nullopt unless its recipe has bench.price_per_hour.
std::optional<double> price_per_million_samples(const ArmResult& arm);

/// Carry-over: what an arm leaves behind for the next turn (heat, a cold cache). With two arms, each follows the other
/// in 5 of 8 turns, so it is charged with a part of what the other leaves.
struct CarryOver {
  double ratio = 1;  ///< the measured ratio divided by the ratio without carry-over between the arms
  std::optional<Interval> interval;
};

/// What is concluded about two of the arms, A and B.
struct PairResult {
  Verdict verdict = Verdict::inconclusive;
  double ratio = 1;                     ///< B's throughput divided by A's (Block::work()), from total times
  std::optional<Interval> interval;     ///< the ratio's, valid whenever sampling might have ended; null: too few blocks
  std::optional<Interval> typical;      ///< the ratio's in a typical block, hardly affected by slow turns
  std::optional<CarryOver> carry_over;  ///< null: too few blocks

  // What it is concluded from
  double level = 0.95, min_effect = 0.01;
  double longest_stall = 9;    ///< longest stall, in turns, that must not go undetected before sampling ends
  bool own_processes = false;  ///< if true, a measurement is a pair of processes, not a block
  double seconds = 0;          ///< duration of the whole comparison
  std::string ended;           ///< as in Sampling
  std::vector<Block> blocks;   ///< the turns of the two; empty after judge() if there are more arms

  /// Turns of each arm.
  int64_t turns() const { return 2 * static_cast<int64_t>(blocks.size()); }
  /// Pairs of processes; 1 if the arms share a process.
  int64_t process_pairs() const { return blocks.empty() ? 0 : blocks.back().pair + 1; }
};

/// With more arms, rounds are long, and the verdicts of all pairs take much memory.
inline constexpr size_t kMostArms = 12;

/// What the headline says: the arm with the highest throughput, and those that are not shown to be slower.
struct Fastest {
  std::vector<size_t> arms;     ///< the fastest as measured, then the others in descending order of throughput
  bool alike = false;           ///< all pairs of them have no effect
  std::optional<double> ahead;  ///< the least ratio shown of the first one's throughput to that of any arm not listed
};

/// What would decide an inconclusive result.
struct ToDecide {
  std::string what;     ///< "to find or rule out a difference of 1.0 % takes about 303 blocks; there were 5"
  double budget_s = 0;  ///< time of the whole comparison; 0: it is not a matter of time
};

struct Comparison {
  std::string command = {};  ///< the command line without budget and folder; empty: unknown
  std::string job, key;  ///< what all arms share, as the user wrote it; the option they differ in. Both are empty for
                         ///< two recipes
  double level = 0.95;   ///< level of all conclusions together
  double min_effect = 0.01;
  uint64_t seed = 0;  ///< seeds the order of the turns
  Sampling sampling;
  std::vector<Json> recipes;                      ///< each arm's; null: not stored
  std::optional<NoiseFloor> noise;                ///< the first arm's; null in own processes, whose spread shows it
  std::vector<std::optional<Numerics>> numerics;  ///< each arm's agreement with the first one, which has none

  // Computed by judge()
  std::vector<ArmResult> arms;    ///< in the order given
  std::vector<PairResult> pairs;  ///< as in pairs_of(), B the later one; each at pair_level()
  Fastest fastest;
  std::vector<std::string> warnings;
  std::vector<ToDecide> to_decide;  ///< empty if all verdicts are decided

  /// Whether the arms are two recipes, A and B; otherwise they are values of `key`.
  bool is_a_and_b() const { return key.empty(); }
  int64_t turns() const { return 2 * static_cast<int64_t>(sampling.rounds.size()); }  ///< turns of each arm
  int64_t sets() const { return sampling.rounds.empty() ? 0 : sampling.rounds.back().set + 1; }
  /// The result of arms `a` < `b`.
  const PairResult& pair(size_t a = 0, size_t b = 1) const;
  /// The agreement of the second arm with the first.
  const std::optional<Numerics>& numbers() const { return numerics[1]; }
};

/// A comparison without results; only the options are filled in.
Comparison empty_comparison(const CompareOptions& options);

/// "pair" (of processes) or "block" of A and B; otherwise "set" or "round".
inline const char* measurement_name(const Comparison& comparison) {
  if (comparison.is_a_and_b()) return comparison.sampling.own_processes ? "pair" : "block";
  return comparison.sampling.own_processes ? "set" : "round";
}

/// Computes all results from the rounds, by the rule that applied during sampling.
void judge(Comparison& comparison);
/// Computes all results from the verdicts of these rounds.
void judge(Comparison& comparison, const PairVerdicts& verdicts);

/// The result of one arm, from its facts and its turns.
ArmResult result_of(const Sampling& sampling, size_t arm);

/// Whether the rest of the error budget is spent at the end: only if time or turns ran out. A decision came at a
/// regular look, and a user who stopped the comparison may have done so because of the results.
bool spends_the_rest(const std::string& ended);
/// The carry-over between two of the `arms` arms of a round.
///
/// In a round the last arm of the first half takes two turns in succession, the first after some other arm and the
/// second after itself. `differences`: from the rounds in which A or B is that arm, the log of the first of these turns
/// over the second, with the opposite sign for A. Let h be what an arm adds to the log time of the next turn. With two
/// arms the differences have the mean h_A − h_B. A drift adds the same to both arms, and the random order removes it.
/// Running alone, an arm would always follow itself. Here it does so in (n + 1) / 2n² of its turns (two arms: 3/8). So
/// the measured log T_A / T_B exceeds that of arms alone by −2·(1 − (n + 1) / 2n²) times the mean.
/// nullopt: too few differences for the level.
std::optional<CarryOver> carry_over(std::span<const double> differences, size_t arms, double level, uint64_t seed);

// Makes the intervals of several ratios agree with each other.

/// `ratios`: for the pairs of pairs_of(arms), an interval of B's throughput relative to A's; null: unknown. If all
/// intervals hold, so do their products along every chain of arms: if B is at least 3 % faster than A, and C at least
/// 2 % faster than B, then C is at least 5.06 % faster than A. Narrows each interval to what all chains allow, so that
/// conclusions drawn from them cannot contradict each other. Returns false, and changes nothing, if no throughputs
/// satisfy all intervals.
bool make_consistent(std::vector<std::optional<Interval>>& ratios, size_t arms);

}  // namespace trainopt
