#include "report/time_histogram.h"

#include <algorithm>
#include <cmath>

namespace trainopt::report {
namespace {

/// Width of the narrowest bin as a share of its place: several ranges, so that bins hold about as many of them.
constexpr double kFinest = 0.005;

double edge(size_t range) {
  return TimeHistogram::kLeast * std::pow(10.0, static_cast<double>(range) / TimeHistogram::kPerDecade);
}

}  // namespace

void TimeHistogram::add(double value) {
  if (!(value >= kLeast && value < kGreatest)) {
    ++outside_;
    return;
  }
  const auto range = static_cast<size_t>(std::log10(value / kLeast) * kPerDecade);
  ++counts_[std::min(range, kRanges - 1)];
  ++count_;
}

TimeHistogram::Drawn TimeHistogram::drawn(size_t bins) const {
  Drawn result;
  if (count_ == 0) return result;
  const auto first = static_cast<size_t>(std::find_if(counts_.begin(), counts_.end(), [](int64_t n) { return n > 0; }) -
                                         counts_.begin());
  const auto enough = static_cast<int64_t>(std::ceil(0.999 * static_cast<double>(count_)));
  size_t end = first;
  for (int64_t seen = 0; seen < enough; ++end) seen += counts_[end];
  const double low = edge(first), high = edge(end);
  const double width = std::max((high - low) / static_cast<double>(bins), kFinest * high);
  for (double from = low; from < high; from += width) result.bins.push_back({from, from + width, 0});
  int64_t drawn = 0;
  for (size_t range = first; range < end; ++range) {
    const auto bin = static_cast<size_t>((edge(range) - low) / width);
    result.bins[std::min(bin, result.bins.size() - 1)].count += counts_[range];
    drawn += counts_[range];
  }
  result.beyond = count_ - drawn;
  return result;
}

}  // namespace trainopt::report
