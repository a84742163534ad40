// A comparison: two arms take turns until it is decided which is faster.
#pragma once

#include "compare/sampling/sampling.h"
#include "statistics/spread.h"
#include "statistics/verdict.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt {

struct ArmResult {
  std::string name;
  ArmFacts facts;
  Json recipe;                                  ///< the effective one; null: an earlier version did not store it
  double samples_per_s = 0, data_wait_pct = 0;  ///< means over the measured blocks
  std::optional<double> tokens_per_s;           ///< mean over the measured blocks; null for images
  std::optional<double> step_ms_p50;
  PhaseSums phases;  ///< sums over the measured blocks; with several ranks, rank 0's
};

/// What a million samples cost at the arm's throughput; nullopt unless its recipe has bench.price_per_hour.
std::optional<double> price_per_million_samples(const ArmResult& arm);

/// Carry-over: what an arm leaves behind for the next turn (heat, a cold cache). Each arm follows the other in 5 of 8
/// turns, so it is charged with a part of what the other leaves.
struct CarryOver {
  double ratio = 1;  ///< the measured ratio divided by the ratio without carry-over between the arms
  std::optional<Interval> interval;
};

struct Comparison {
  Verdict verdict = Verdict::inconclusive;
  double ratio = 1;                     ///< B's throughput divided by A's (Block::work()), from total times
  std::optional<Interval> interval;     ///< the ratio's, valid whenever sampling might have ended; null: too few blocks
  std::optional<Interval> typical;      ///< the ratio's in a typical block, hardly affected by slow turns
  std::optional<CarryOver> carry_over;  ///< null: too few blocks
  double level = 0.95, min_effect = 0.01;
  double longest_stall = 9;  ///< longest stall, in turns, that must not go undetected before sampling ends
  uint64_t seed = 0;         ///< seeds the coin tosses
  std::vector<Block> blocks;
  std::optional<NoiseFloor> noise;   ///< null in pairs of processes, which show their own variation
  std::optional<Numerics> numerics;  ///< null if not requested
  ArmResult a, b;
  bool own_processes = false;  ///< if true, a measurement is a pair of processes, not a block
  double seconds = 0;          ///< duration of the whole comparison
  std::string
      ended;  ///< why sampling ended: decided, precision, budget, repeats, stopped, failed; unfinished: it has not
  std::string failure;  ///< the arm's message, if sampling ended because an arm failed
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

/// The comparison of the two arms of a sampling, with its verdict and warnings.
Comparison comparison_of(const Sampling& sampling, const CompareOptions& options,
                         const std::optional<NoiseFloor>& noise = {});
/// The result of one arm, from its facts and its turns.
ArmResult result_of(const Sampling& sampling, size_t arm);
/// Reports the progress of two arms and lets the observer keep the result so far. Both arguments must outlive it.
LookCallback report_and_keep(const std::function<Comparison(const Sampling&)>& comparison, const Observer& observer);

/// A comparison without results; only the options are filled in.
Comparison empty_comparison(const CompareOptions& options);
/// Computes verdict, ratio, intervals and carry-over from the blocks, by the rule that applied during sampling.
void judge_blocks(Comparison& comparison);
/// The part of judge_blocks() that a sequential verdict gives.
void conclude(Comparison& comparison, const SequentialVerdict& verdict);
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

}  // namespace trainopt
