#include "report/time_histogram.h"

#include <algorithm>
#include <cmath>

namespace trainopt::report {
namespace {

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
  const size_t width = std::max<size_t>(1, (end - first + bins - 1) / bins);
  int64_t drawn = 0;
  for (size_t begin = first; begin < end; begin += width) {
    int64_t count = 0;
    for (size_t range = begin; range < std::min(begin + width, kRanges); ++range) count += counts_[range];
    result.bins.push_back({edge(begin), edge(begin + width), count});
    drawn += count;
  }
  result.beyond = count_ - drawn;
  return result;
}

}  // namespace trainopt::report
