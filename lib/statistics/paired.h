// What paired blocks say about the true difference, without a model of the noise.
#pragma once

#include "statistics/interval.h"

#include <cstdint>
#include <optional>
#include <span>

namespace trainopt {

/// The interval of the mean of `differences`, one number a block: log(time of A's two turns / time of B's two turns),
/// or any other number that changes sign when A and B change places. Coverage is at least `level` (in (0, 1)) whenever
/// each difference minus its true value would have been equally likely with the other sign, all else equal. A coin
/// tossed for each block makes that so whatever the noise: drift, dependence between blocks, outliers, clocks that
/// jump.
///
/// It is the set of means that a sign-flip test does not reject, which by J. A. Hartigan, "Using subsample values as
/// typical values", JASA 64 (1969), lies between two order statistics of the means of subsets: of all 2^n subsets up to
/// 12 blocks, then of a group of 2^12 (more where the level demands it) closed under symmetric difference, which keeps
/// the coverage exact for every seed. `seed` chooses the group. nullopt: the level cannot be reached with so few
/// blocks, 2/2^n > 1 − level.
std::optional<Interval> paired_interval(std::span<const double> differences, double level, uint64_t seed);

}  // namespace trainopt
