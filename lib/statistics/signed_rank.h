// The middle of paired differences, without a model of the noise and little moved by outliers.
#pragma once

#include "statistics/interval.h"

#include <optional>
#include <span>

namespace trainopt {

/// The interval of the centre of `differences` at `level` in (0, 1): the centres that Wilcoxon's signed-rank test does
/// not reject, which lie between two order statistics of the means of all pairs, each with itself too (J. L. Hodges and
/// E. L. Lehmann, "Estimates of location based on rank tests", Ann. Math. Statist. 34, 1963). Holds under what
/// SignFlipTest assumes, for each difference. nullopt: the level cannot be reached with so few differences,
/// 2/2^n > 1 − level.
std::optional<Interval> signed_rank_interval(std::span<const double> differences, double level);

}  // namespace trainopt
