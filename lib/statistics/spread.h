// How widely numbers scatter.
#pragma once

#include "statistics/interval.h"

#include <cstddef>
#include <span>
#include <vector>

namespace trainopt {

/// The standard deviation of a sample, with n − 1; 0 of fewer than two values.
double standard_deviation(std::span<const double> values);

/// From the `outside`-th smallest to the `outside`-th largest value, 1 ≤ outside ≤ (n + 1) / 2. Changes their order.
Interval between_order_statistics(std::vector<double>& values, std::ptrdiff_t outside);

}  // namespace trainopt
