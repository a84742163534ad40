#include "statistics/welch.h"

#include "base/error.h"
#include "statistics/spread.h"

#include <algorithm>
#include <cmath>
#include <numbers>

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

namespace {

/// The continued fraction of the incomplete beta function, by Lentz's method.
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  double c = 1, d = 1 / (1 - (a + b) * x / (a + 1)), value = d;
  for (int m = 1; m <= 500; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                 odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    for (const double term : {even, odd}) {
      d = 1 / std::copysign(std::max(std::abs(1 + term * d), kTiny), 1 + term * d);
      c = 1 + term / c;
      value *= c * d;
    }
    if (std::abs(c * d - 1) < 1e-14) break;
  }
  return value;
}

/// I_x(a, b).
double incomplete_beta(double a, double b, double x) {
  if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

/// The argument at which `tail_of`, which decreases from 1/2 at 0, equals `tail`. By bisection.
template <class TailOf>
double quantile(double tail, TailOf&& tail_of) {
  double low = 0, high = 1;
  while (tail_of(high) > tail && high < 1e12) high *= 2;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (tail_of(middle) > tail ? low : high) = middle;
  }
  return low;
}

}  // namespace

double student_tail(double t, double degrees) {
  TRAINOPT_CHECK(degrees > 0);
  const double beyond = incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2;
  return t >= 0 ? beyond : 1 - beyond;
}

double student_quantile(double tail, double degrees) {
  TRAINOPT_CHECK(tail > 0 && tail <= 0.5);
  return quantile(tail, [&](double t) { return student_tail(t, degrees); });
}

double normal_quantile(double tail) {
  TRAINOPT_CHECK(tail > 0 && tail <= 0.5);
  return quantile(tail, [](double z) { return std::erfc(z / std::numbers::sqrt2) / 2; });
}

}  // namespace trainopt
