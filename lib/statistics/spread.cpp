#include "statistics/spread.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trainopt {

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double standard_deviation(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const double mean = mean_of(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

Interval between_order_statistics(std::vector<double>& values, std::ptrdiff_t outside) {
  TRAINOPT_CHECK(outside >= 1 && 2 * outside <= static_cast<std::ptrdiff_t>(values.size()) + 1);
  const auto low = values.begin() + (outside - 1), high = values.end() - outside;
  std::nth_element(values.begin(), low, values.end());
  Interval interval{.low = *low};
  std::nth_element(low, high, values.end());
  interval.high = *high;
  return interval;
}

}  // namespace trainopt
