// A confidence interval: contains an unknown number with a stated probability.
#pragma once

namespace trainopt {

/// Closed; low ≤ high.
struct Interval {
  double low = 0, high = 0;

  bool contains(double value) const { return low <= value && value <= high; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

}  // namespace trainopt
