// Makes the intervals of several ratios agree with each other.
#pragma once

#include "statistics/interval.h"

#include <cstddef>
#include <optional>
#include <vector>

namespace trainopt {

/// `ratios`: for the pairs of pairs_of(arms), an interval of B's throughput relative to A's; null: unknown. If all
/// intervals hold, so do their products along every chain of arms: if B is at least 3 % faster than A, and C at least
/// 2 % faster than B, then C is at least 5.06 % faster than A. Narrows each interval to what all chains allow, so that
/// conclusions drawn from them cannot contradict each other. Returns false, and changes nothing, if no throughputs
/// satisfy all intervals.
bool make_consistent(std::vector<std::optional<Interval>>& ratios, size_t arms);

}  // namespace trainopt
