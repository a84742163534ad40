// From intervals to a word, and when to look.
#pragma once

#include "statistics/interval.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace trainopt {

enum class Verdict { pays, costs, no_effect, inconclusive };

/// "pays", "costs", "no effect", "inconclusive".
std::string_view text(Verdict verdict);

/// What an interval of the ratio of throughputs (B's over A's; above 1: B is faster) says. Wholly within [1/(1+m),
/// 1+m], m = `min_effect` (≥ 0): no_effect, even if it leaves out 1; else wholly above 1: pays; wholly below 1: costs;
/// else inconclusive.
Verdict judge(Interval ratio, double min_effect);

struct SequentialOptions {
  double level = 0.95;       ///< 1 − the chance that any verdict or interval, at any look, is wrong
  double min_effect = 0.01;  ///< ratios within 1/(1 + this) … 1 + this are no effect
  uint64_t seed = 0;         ///< of paired_interval()
};

/// The number of blocks at look `look` (from 0): 8, 12, 18, 27, 40, 60, 90, 135, …
int64_t blocks_at_look(int look);

/// Decides as blocks come in, as early as the evidence allows. Looks happen at blocks_at_look() only, and look k takes
/// a share 0.8^k / 5 of the error budget 1 − level; the shares sum to 1, so by Bonferroni all looks together, however
/// many, are wrong with at most that probability. All intervals then hold the true ratio at once, hence so does their
/// intersection, which is the interval reported: a decision can be refined by later blocks (pays, then no effect),
/// never withdrawn.
class SequentialVerdict {
 public:
  explicit SequentialVerdict(SequentialOptions options);

  /// The difference of one more block, log(time of A / time of B) for equal samples. Finite.
  void add(double log_ratio);
  /// One last look, with all of the budget that is left. To be called once, when time (or blocks) ran out, not because
  /// of what the differences look like; no block may be added afterwards.
  void finish();

  bool decided() const { return verdict() != Verdict::inconclusive; }
  Verdict verdict() const { return interval_ ? judge(*interval_, options_.min_effect) : Verdict::inconclusive; }
  int64_t blocks() const { return static_cast<int64_t>(differences_.size()); }
  /// B's throughput over A's, the geometric mean over all blocks, within interval(). Needs a block.
  double ratio() const;
  /// Of the ratio, valid at every look. nullopt: no look yet, or too few blocks for the level.
  const std::optional<Interval>& interval() const { return interval_; }

 private:
  void look(double error);

  SequentialOptions options_;
  std::vector<double> differences_;
  int looks_ = 0;
  bool finished_ = false;
  std::optional<Interval> interval_;
};

/// About how many blocks SequentialVerdict takes where one block's log ratio has the standard deviation `sd`: the first
/// look with a chance of 80 % to find no effect where there is none, and of 90 % to see one of `min_effect` (> 0).
int64_t blocks_needed(double sd, const SequentialOptions& options);

}  // namespace trainopt
