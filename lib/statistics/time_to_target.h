// Which of two recipes reaches a target sooner, from runs of both with the same seeds, some of which never reach it.
#pragma once

#include "statistics/spread.h"

#include <cstdint>
#include <optional>
#include <span>

namespace trainopt {

/// One run: when it reached the target, or when it ended without.
struct RunToTarget {
  double seconds = 0;    ///< > 0; infinite for a run that can never reach it, because it diverged
  bool reached = false;  ///< otherwise it is known only that the target would have taken longer (censored)
};

/// Both recipes with one seed.
struct PairToTarget {
  RunToTarget a, b;
};

struct TargetRatio {
  /// Time of A ÷ time of B, above 1: B is sooner. An end is 0 or infinite if runs that never arrived leave it open.
  /// nullopt: too few pairs for the level, 2/2^n > 1 − level.
  std::optional<Interval> interval;
  /// The median of the pairwise means of the decided pairs (Hodges and Lehmann 1963), 0 or infinite as above; null if
  /// no pair is decided.
  std::optional<double> ratio;
  int64_t undecided = 0;  ///< pairs of which it is unknown who is sooner: the interval holds whoever was
};

/// Wilcoxon's signed-rank test of the log ratios, inverted (signed_rank.h). Assumes that without a difference a pair is
/// as likely as the same pair with A and B exchanged, which equal seeds and turns make true. A pair in which only one
/// run arrived counts as the largest difference of all if the other run ended later than it arrived; if it ended
/// sooner, nobody knows who would have been first (Gehan 1965).
TargetRatio target_ratio(std::span<const PairToTarget> pairs, double level);

}  // namespace trainopt
