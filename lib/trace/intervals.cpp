#include "trace/intervals.h"

#include <algorithm>

namespace trainopt::trace {

Intervals merged(std::vector<Interval> parts) {
  std::sort(parts.begin(), parts.end(), [](const Interval& a, const Interval& b) { return a.start_ns < b.start_ns; });
  Intervals set;
  for (const Interval& part : parts) {
    if (part.end_ns <= part.start_ns) continue;
    if (!set.empty() && part.start_ns <= set.back().end_ns)
      set.back().end_ns = std::max(set.back().end_ns, part.end_ns);
    else
      set.push_back(part);
  }
  return set;
}

Intervals intersection(const Intervals& a, const Intervals& b) {
  Intervals common;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const Interval both{std::max(a[i].start_ns, b[j].start_ns), std::min(a[i].end_ns, b[j].end_ns)};
    if (both.start_ns < both.end_ns) common.push_back(both);
    a[i].end_ns < b[j].end_ns ? ++i : ++j;
  }
  return common;
}

Intervals clipped(const Intervals& set, Interval window) {
  const auto first = std::partition_point(set.begin(), set.end(),
                                          [&](const Interval& part) { return part.end_ns <= window.start_ns; });
  Intervals inside;
  for (auto part = first; part != set.end() && part->start_ns < window.end_ns; ++part)
    inside.push_back({std::max(part->start_ns, window.start_ns), std::min(part->end_ns, window.end_ns)});
  return inside;
}

Intervals difference(const Intervals& a, const Intervals& b) {
  Intervals rest;
  size_t j = 0;
  for (const Interval& part : a) {
    int64_t from = part.start_ns;
    while (j < b.size() && b[j].end_ns <= from) ++j;
    for (size_t k = j; k < b.size() && b[k].start_ns < part.end_ns; ++k) {
      if (b[k].start_ns > from) rest.push_back({from, b[k].start_ns});
      from = std::max(from, b[k].end_ns);
    }
    if (from < part.end_ns) rest.push_back({from, part.end_ns});
  }
  return rest;
}

int64_t length_ns(const Intervals& set) {
  int64_t length = 0;
  for (const Interval& part : set) length += part.length_ns();
  return length;
}

}  // namespace trainopt::trace
