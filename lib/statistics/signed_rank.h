// The centre of paired differences, robust to outliers and without a model of the noise.
#pragma once

#include "statistics/spread.h"

#include <optional>
#include <span>

namespace trainopt {

/// The interval of the centre of `differences` at `level` in (0, 1): the centres that Wilcoxon's signed-rank test does
/// not reject. They lie between two order statistics of the pairwise means, each value paired with itself too (J. L.
/// Hodges and E. L. Lehmann, "Estimates of location based on rank tests", Ann. Math. Statist. 34, 1963). Assumes of
/// each difference what SignFlipTest assumes. nullopt: too few differences to reach the level, 2/2^n > 1 − level.
std::optional<Interval> signed_rank_interval(std::span<const double> differences, double level);

}  // namespace trainopt
