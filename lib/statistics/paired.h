// Confidence interval of the true difference from paired blocks, without a model of the noise.
#pragma once

#include "statistics/spread.h"

#include <cstdint>
#include <optional>
#include <span>

namespace trainopt {

/// The interval of the mean of `differences`, one number per block: log(time of A's two turns / time of B's two turns),
/// or any other number that changes sign when A and B swap. Coverage is at least `level` (in (0, 1)) if each difference
/// minus its true value is equally likely to have either sign, all else equal. A coin toss for each block ensures that
/// for any noise: drift, dependence between blocks, outliers, jumping clocks.
///
/// The interval is the set of means that a sign-flip test does not reject. By J. A. Hartigan, "Using subsample values
/// as typical values", JASA 64 (1969), it lies between two order statistics of the means of subsets: of all 2^n subsets
/// for up to 12 blocks, otherwise of a group of 2^12 subsets (more if the level requires it) that is closed under
/// symmetric difference, which keeps the coverage exact for every seed. `seed` chooses the group. nullopt: too few
/// blocks to reach the level, 2/2^n > 1 − level.
std::optional<Interval> paired_interval(std::span<const double> differences, double level, uint64_t seed);

}  // namespace trainopt
