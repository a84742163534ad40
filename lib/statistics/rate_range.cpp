#include "statistics/rate_range.h"

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

/// The suggestion is read where the loss has made this share of its fall. Where it is lowest says less: between there
/// and where training fails the curve is flat, and noise decides. Measured, as the divisors are
/// (scripts/bench/results/find_lr.md).
constexpr double kShareOfFall = 0.7;

/// What part of that rate is suggested.
struct Margin {
  double divisor;
  const char* words;
};
Margin margin_of(UpdateLength length) {
  switch (length) {
    case UpdateLength::gradient:
      return {3, "a third of "};
    case UpdateLength::fixed:
      return {1, ""};
    case UpdateLength::weights:
      return {4, "a quarter of "};
  }
  return {};
}
/// The loss must fall by at least this share of its first value to show anything.
constexpr double kLeastFall = 0.02;

/// The mean of each point's neighbours with weights that fall linearly. It does not lag behind as a running mean does.
std::vector<double> smooth(const std::vector<double>& losses) {
  const auto count = static_cast<int64_t>(losses.size()), width = std::max<int64_t>(2, count / 20);
  std::vector<double> result;
  for (int64_t i = 0; i < count; ++i) {
    double sum = 0, weights = 0;
    for (int64_t j = std::max<int64_t>(0, i - width); j <= std::min(count - 1, i + width); ++j) {
      const auto weight = static_cast<double>(width + 1 - std::abs(i - j));
      sum += weight * losses[static_cast<size_t>(j)];
      weights += weight;
    }
    result.push_back(sum / weights);
  }
  return result;
}

}  // namespace

RateRange read_rate_range(const std::vector<RatePoint>& points, UpdateLength length) {
  TRAINOPT_CHECK(points.size() >= kFewestPoints);
  std::vector<double> losses;
  for (const RatePoint& point : points) {
    if (!std::isfinite(point.loss)) break;
    losses.push_back(point.loss);
  }
  RateRange range;
  if (losses.size() < points.size()) range.failed = losses.size();
  if (losses.size() < kFewestPoints) {
    range.smoothed = losses;
    range.reason =
        fmt::format("the loss was not finite from {:.3g} on; start at a lower rate", points[losses.size()].rate);
    return range;
  }
  range.smoothed = smooth(losses);
  const double first = range.smoothed.front();
  for (size_t i = 0; i < range.smoothed.size(); ++i) {
    if (range.smoothed[i] < range.smoothed[range.lowest]) range.lowest = i;
    // Above the first loss by half of what it had fallen: then no noise explains it.
    const double fallen = first - range.smoothed[range.lowest];
    if (fallen > kLeastFall * first && range.smoothed[i] > first + fallen / 2) {
      range.failed = i;
      range.smoothed.resize(i + 1);
      break;
    }
  }
  const double fallen = first - range.smoothed[range.lowest];
  if (fallen <= kLeastFall * first) {
    range.reason = "the loss fell at no rate; try higher rates, more steps, or look at the data";
  } else if (!range.failed && range.lowest + 1 == range.smoothed.size()) {
    range.reason = fmt::format("the loss still falls at the highest rate, {:.3g}; try higher ones", points.back().rate);
  } else {
    while (range.smoothed[range.steep] > first - kShareOfFall * fallen) ++range.steep;
    const Margin margin = margin_of(length);
    const double rate = points[range.steep].rate;
    range.suggestion = rate / margin.divisor;
    range.reason = fmt::format("{}{:.3g}, where the loss had made {:.0f} % of its fall; lowest at {:.3g}{}",
                               margin.words, rate, 100 * kShareOfFall, points[range.lowest].rate,
                               range.failed ? fmt::format(", failed at {:.3g}", points[*range.failed].rate) : "");
  }
  return range;
}

}  // namespace trainopt
