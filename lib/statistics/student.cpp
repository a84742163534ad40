#include "statistics/student.h"

#include "base/error.h"

#include <cmath>
#include <numbers>

namespace trainopt {

double student_quantile(double tail, double degrees) {
  TRAINOPT_CHECK(tail > 0 && tail <= 0.5 && degrees >= 2);
  double low = 0, high = 40;  // of the normal distribution, by bisection
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::numbers::sqrt2) / 2 > tail ? low : high) = middle;
  }
  const double z = low, z2 = z * z;
  return z * (1 + (z2 + 1) / (4 * degrees) + ((5 * z2 + 16) * z2 + 3) / (96 * degrees * degrees) +
              (((3 * z2 + 19) * z2 + 17) * z2 - 15) / (384 * degrees * degrees * degrees));
}

}  // namespace trainopt
