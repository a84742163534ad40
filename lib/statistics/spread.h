// Mean, standard deviation and order statistics.
#pragma once

#include "statistics/interval.h"

#include <cstddef>
#include <span>
#include <vector>

namespace trainopt {

/// The arithmetic mean of at least one value.
double mean_of(std::span<const double> values);

/// The sample standard deviation, with n − 1; 0 for fewer than two values.
double standard_deviation(std::span<const double> values);

/// From the `outside`-th smallest to the `outside`-th largest value, 1 ≤ outside ≤ (n + 1) / 2. Reorders `values`.
Interval between_order_statistics(std::vector<double>& values, std::ptrdiff_t outside);

}  // namespace trainopt
