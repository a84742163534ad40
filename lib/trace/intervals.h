// Sets of instants: sorted, disjoint, half-open intervals.
#pragma once

#include <cstdint>
#include <vector>

namespace trainopt::trace {

struct Interval {
  int64_t start_ns = 0, end_ns = 0;
  int64_t length_ns() const { return end_ns - start_ns; }
  bool contains(int64_t time_ns) const { return start_ns <= time_ns && time_ns < end_ns; }
  bool operator==(const Interval&) const = default;
};

/// Sorted, disjoint, none empty; two never touch.
using Intervals = std::vector<Interval>;

/// The union of any intervals.
Intervals merged(std::vector<Interval> parts);
Intervals intersection(const Intervals& a, const Intervals& b);
/// The part of `set` inside `window`; takes time in proportion to that part.
Intervals clipped(const Intervals& set, Interval window);
/// The instants of `a` that are not in `b`.
Intervals difference(const Intervals& a, const Intervals& b);
int64_t length_ns(const Intervals& set);

}  // namespace trainopt::trace
