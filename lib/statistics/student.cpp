#include "statistics/student.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trainopt {
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
