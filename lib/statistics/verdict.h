// From measurements to a verdict, and when there are enough of them.
#pragma once

#include "statistics/sign_flips.h"
#include "statistics/spread.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace trainopt {

enum class Verdict { pays, costs, no_effect, inconclusive };

/// "pays", "costs", "no effect", "inconclusive".
std::string_view text(Verdict verdict);

/// The verdict from an interval of the ratio of B's throughput to A's (above 1: B is faster). Entirely within
/// [1/(1+m), 1+m], m = `min_effect` (≥ 0): no_effect, even if it excludes 1; otherwise, entirely above 1: pays;
/// entirely below 1: costs; otherwise inconclusive.
Verdict judge(Interval ratio, double min_effect);

/// A block of turns, or a pair of processes with several blocks: the unit whose order one coin toss decides.
struct Measurement {
  PairedTimes seconds_per_sample;  ///< for each arm, over all its turns
  PairedTimes longest_turn;        ///< seconds per sample in each arm's slowest turn
  int64_t turns = 2;               ///< each arm's turns
};

struct SequentialOptions {
  double level = 0.95;       ///< 1 − the chance that any verdict or interval, at any look, is wrong
  double min_effect = 0.01;  ///< ratios within 1/(1 + this) … 1 + this are no effect
  std::optional<double>
      precision;             ///< continue until both ends of the interval are this close to the ratio (0.01: 1 %)
  double longest_stall = 9;  ///< longest stall that must not go undetected, in turns
  uint64_t seed = 0;         ///< for SignFlipTest
};

/// The number of measurements at look `look` (from 0): 8, 12, 18, 27, 40, 60, 90, 135, …
int64_t measurements_at_look(int look);

/// With kTurnsToSeeStalls turns of each arm, stalls in one of kStallEvery turns are seen with a probability of 90 %.
inline constexpr int64_t kStallEvery = 50, kTurnsToSeeStalls = 115;
/// Returns n such that stalls that occur once in n turns, or more rarely, are missed by `turns` (> 0) turns with a
/// probability of at least 10 %.
double stalls_missed(int64_t turns);

/// Sequential verdict: decides while measurements come in, as early as the evidence allows.
///
/// The ratio is that of total times: long-run throughput, slow turns included. Looks (interim analyses) happen only at
/// measurements_at_look(). Each may spend a part of the error budget 1 − level, a small one at first (alpha spending).
/// An interval contains the ratios that no look has rejected (SignFlipTest). So all intervals contain the true ratio
/// simultaneously with probability `level`, and a decision can be refined (pays, then no effect) but never withdrawn.
///
/// The exception is occasional stalls of one arm alone, which a mean over few turns does not show. So two allowances
/// add time to the faster arm. First, if its slowest turn exceeds its mean by more than the other arm's does, twice the
/// difference is added. Second, until kTurnsToSeeStalls, nothing is decided that stalls of `longest_stall` turns could
/// undo if they were as frequent as they can be without being noticed. If time runs out before that, the second is
/// dropped, and the caller must report what may have been missed (stalls_missed()).
class SequentialVerdict {
 public:
  explicit SequentialVerdict(SequentialOptions options);

  /// One more measurement; times finite and > 0.
  void add(const Measurement& measurement);
  /// One last look, which spends the rest of the budget. Call it once, because time (or turns) ran out, not because of
  /// what the measurements look like. Nothing may be added afterwards.
  void finish();

  /// Whether measuring can stop: undetected stalls would hardly undo the verdict, or the requested precision is
  /// reached.
  bool decided() const;
  /// The verdict from interval().
  Verdict verdict() const;
  int64_t measurements() const { return static_cast<int64_t>(pairs_.size()); }
  int64_t turns() const { return turns_; }  ///< each arm's turns
  int looks() const { return static_cast<int>(test_.looks()); }
  /// The ratio of B's throughput to A's, clamped to interval(). Requires a measurement.
  double ratio() const;
  /// The ratio's interval, valid at every look. nullopt: no look yet, or too few measurements for the level.
  std::optional<Interval> interval() const;
  /// The ratio in a typical measurement, hardly affected by slow turns: the signed-rank interval of the log ratios
  /// (signed_rank.h), valid at the same looks. nullopt: as above.
  std::optional<Interval> typical_interval() const;
  /// The part of the error budget 1 − level spent so far.
  double spent() const { return spent_; }
  /// Whether interval() excludes `ratio`; far cheaper than interval().
  bool rejects(double ratio) const {
    return test_.rejects_as_too_low(ratio, false) || test_.rejects_as_too_high(ratio, false);
  }
  /// Whether `ratio` is rejected even if undetected stalls slow the faster arm, so that measuring can stop as far as it
  /// is concerned.
  bool settles(double ratio) const { return test_.rejects_as_too_low(ratio) || test_.rejects_as_too_high(ratio); }

 private:
  void look(double spent);
  /// The verdict of the looks so far; `charge_last`: with the allowance for undetected stalls at the last look.
  Verdict judge_looks(bool charge_last) const;

  SequentialOptions options_;
  SignFlipTest test_;
  std::vector<PairedTimes> pairs_;
  PairedTimes longest_turn_;
  int64_t turns_ = 0;
  int looks_ = 0;
  double spent_ = 0;
  bool finished_ = false;
  /// For each look, the number of measurements and the error that it adds to the budget spent.
  std::vector<std::pair<size_t, double>> looked_;
  // Caches, each with the number of looks it was computed from.
  mutable Verdict verdict_ = Verdict::inconclusive;
  mutable bool decided_ = false;
  mutable std::optional<Interval> interval_;
  mutable int64_t verdict_looks_ = 0, decided_looks_ = 0, interval_looks_ = 0;
};

/// About how many measurements SequentialVerdict takes if the log ratio of one has the standard deviation `sd`: those
/// of the first look with a chance of 80 % of finding no effect if there is none, and of 90 % of finding one of
/// `min_effect` (> 0). A measurement has `turns` turns of each arm: with few of them, possible undetected stalls keep a
/// small effect undecided (longest_stall).
int64_t measurements_needed(double sd, const SequentialOptions& options, int64_t turns = 2);

}  // namespace trainopt
