// From measurements to a word, and when there are enough of them.
#pragma once

#include "statistics/interval.h"
#include "statistics/sign_flips.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace trainopt {

enum class Verdict { pays, costs, no_effect, inconclusive };

/// "pays", "costs", "no effect", "inconclusive".
std::string_view text(Verdict verdict);

/// What an interval of the ratio of throughputs (B's over A's; above 1: B is faster) says. Wholly within [1/(1+m),
/// 1+m], m = `min_effect` (≥ 0): no_effect, even if it leaves out 1; else wholly above 1: pays; wholly below 1: costs;
/// else inconclusive.
Verdict judge(Interval ratio, double min_effect);

/// A block of turns, or a pair of processes with several: one coin decided its order.
struct Measurement {
  PairedTimes seconds_per_sample;  ///< of each arm over all its turns
  PairedTimes longest_turn;        ///< seconds per sample in each arm's slowest turn
  int64_t turns = 2;               ///< of each arm
};

struct SequentialOptions {
  double level = 0.95;              ///< 1 − the chance that any verdict or interval, at any look, is wrong
  double min_effect = 0.01;         ///< ratios within 1/(1 + this) … 1 + this are no effect
  std::optional<double> precision;  ///< goes on until the interval's ends are so close to the ratio (0.01: 1 %)
  double longest_stall = 9;         ///< how many turns' time a stall may cost that must not go unseen
  uint64_t seed = 0;                ///< of SignFlipTest
};

/// The number of measurements at look `look` (from 0): 8, 12, 18, 27, 40, 60, 90, 135, …
int64_t measurements_at_look(int look);

/// With so many turns of each arm, a stall in one turn of kStallEvery is seen with a probability of 90 %.
inline constexpr int64_t kStallEvery = 50, kTurnsToSeeStalls = 115;
/// Stalls that come once in so many turns, or more rarely, are missed by `turns` (> 0) turns with a probability of at
/// least 10 %.
double stalls_missed(int64_t turns);

/// Decides as measurements come in, as early as the evidence allows.
///
/// The ratio is that of total times: throughput as a long run has it, its slow turns included. Looks happen at
/// measurements_at_look() only. Each may spend a part of the error budget 1 − level, small at first: an interval holds
/// the ratios that no look has rejected (SignFlipTest), so all of them hold the true ratio at once with probability
/// `level`, and a decision can be refined (pays, then no effect), never withdrawn.
///
/// Stalls that come in one arm alone are the exception: a mean over few turns does not know them. So two allowances
/// make the faster arm prove more. Where its slowest turn was slower than the other arm's slowest, it is charged twice
/// more with that difference. And until kTurnsToSeeStalls, nothing is decided that stalls of `longest_stall` turns
/// could undo if they came as often as they might have gone unseen. When time runs out before, the second is dropped,
/// and who reports the result says what may have been missed (stalls_missed()).
class SequentialVerdict {
 public:
  explicit SequentialVerdict(SequentialOptions options);

  /// One more measurement; times finite and > 0.
  void add(const Measurement& measurement);
  /// One last look, with all of the budget that is left. To be called once, when time (or turns) ran out, not because
  /// of what the measurements look like; nothing may be added afterwards.
  void finish();

  /// Whether there is no need to go on: a word that unseen stalls would hardly undo, or the precision asked for.
  bool decided() const;
  /// What interval() says.
  Verdict verdict() const;
  int64_t measurements() const { return static_cast<int64_t>(pairs_.size()); }
  int64_t turns() const { return turns_; }  ///< of each arm
  int looks() const { return static_cast<int>(test_.looks()); }
  /// B's throughput over A's, within interval(). Needs a measurement.
  double ratio() const;
  /// Of the ratio, valid at every look. nullopt: no look yet, or too few measurements for the level.
  std::optional<Interval> interval() const;
  /// The ratio in a usual measurement, whatever the slow turns cost: the middle of the signed-rank interval of the log
  /// ratios (signed_rank.h), valid at the same looks. nullopt: as above.
  std::optional<Interval> usual_interval() const;
  /// The error budget that was spent so far, of 1 − level.
  double spent() const { return spent_; }
  /// Whether interval() leaves out `ratio`; far cheaper than interval().
  bool rejects(double ratio) const {
    return test_.rejects_as_too_low(ratio, false) || test_.rejects_as_too_high(ratio, false);
  }

 private:
  void look(double spent);
  /// By the looks so far; `charge_last`: with the charge for stalls that the last one may have missed.
  Verdict judge_looks(bool charge_last) const;

  SequentialOptions options_;
  SignFlipTest test_;
  std::vector<PairedTimes> pairs_;
  PairedTimes longest_turn_;
  int64_t turns_ = 0;
  int looks_ = 0;
  double spent_ = 0;
  bool finished_ = false;
  /// How many measurements each look had, and the error it may spend for itself.
  std::vector<std::pair<size_t, double>> looked_;
  // Found when they are asked for, from so many looks.
  mutable Verdict verdict_ = Verdict::inconclusive;
  mutable bool decided_ = false;
  mutable std::optional<Interval> interval_;
  mutable int64_t verdict_looks_ = 0, decided_looks_ = 0, interval_looks_ = 0;
};

/// About how many measurements SequentialVerdict takes where the log ratio of one has the standard deviation `sd`: the
/// first look with a chance of 80 % to find no effect where there is none, and of 90 % to see one of `min_effect` (>
/// 0). `turns` of each arm are in a measurement: with few of them, unseen stalls keep a small effect open
/// (longest_stall).
int64_t measurements_needed(double sd, const SequentialOptions& options, int64_t turns = 2);

}  // namespace trainopt
