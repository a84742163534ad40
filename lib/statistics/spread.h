// Mean, standard deviation and order statistics.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace trainopt {

// A confidence interval: contains an unknown number with a stated probability.

/// Closed; low ≤ high.
struct Interval {
  double low = 0, high = 0;

  bool contains(double value) const { return low <= value && value <= high; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

/// The arithmetic mean of at least one value.
double mean_of(std::span<const double> values);

/// The sample standard deviation, with n − 1; 0 for fewer than two values.
double standard_deviation(std::span<const double> values);

/// From the `outside`-th smallest to the `outside`-th largest value, 1 ≤ outside ≤ (n + 1) / 2. Reorders `values`.
Interval between_order_statistics(std::vector<double>& values, std::ptrdiff_t outside);

}  // namespace trainopt
