#include "statistics/welch.h"

#include "base/error.h"
#include "statistics/spread.h"
#include "statistics/student.h"

#include <cmath>

namespace trainopt {
namespace {

/// The variance of the mean.
double variance_of_mean(std::span<const double> values) {
  const double sd = standard_deviation(values);
  return sd * sd / static_cast<double>(values.size());
}

}  // namespace

std::optional<Interval> welch_interval(std::span<const double> a, std::span<const double> b, double level) {
  TRAINOPT_CHECK(level > 0 && level < 1);
  if (a.size() < 2 || b.size() < 2) return std::nullopt;
  const double of_a = variance_of_mean(a), of_b = variance_of_mean(b), variance = of_a + of_b;
  if (!(variance > 0)) return std::nullopt;
  const double degrees =
      variance * variance /
      (of_a * of_a / static_cast<double>(a.size() - 1) + of_b * of_b / static_cast<double>(b.size() - 1));
  const double half = student_quantile((1 - level) / 2, degrees) * std::sqrt(variance),
               difference = mean_of(b) - mean_of(a);
  return Interval{difference - half, difference + half};
}

double mean_half_width(double sd, int64_t count, double level) {
  TRAINOPT_CHECK(sd >= 0 && count >= 2 && level > 0 && level < 1);
  const auto n = static_cast<double>(count);
  return student_quantile((1 - level) / 2, n - 1) * sd / std::sqrt(n);
}

int64_t welch_values_needed(double sd_a, double sd_b, double level, double effect) {
  TRAINOPT_CHECK(sd_a >= 0 && sd_b >= 0 && effect > 0);
  constexpr double kMissed = 0.1;
  const double sd = std::hypot(sd_a, sd_b);
  for (int64_t count = 2;; count += 1 + count / 20) {
    const auto n = static_cast<double>(count);
    const double degrees = 2 * (n - 1);  // for equal variances; fewer if they differ, but never fewer than half
    const double reach = student_quantile((1 - level) / 2, degrees) + student_quantile(kMissed, degrees);
    if (reach * sd / std::sqrt(n) <= effect) return count;
  }
}

}  // namespace trainopt
