#include "statistics/welch.h"

#include "base/error.h"
#include "support/catch.h"

#include <cmath>
#include <numbers>

using namespace trainopt;

TEST_CASE("quantiles of Student's t match published tables") {
  struct Row {
    double tail, degrees, value;
  };
  for (const auto& [tail, degrees, value] :
       {Row{0.025, 1, 12.706204736}, Row{0.025, 2, 4.302652730}, Row{0.025, 4, 2.776445105}, Row{0.025, 5, 2.570581836},
        Row{0.025, 10, 2.228138852}, Row{0.025, 30, 2.042272456}, Row{0.025, 120, 1.979930405},
        Row{0.005, 7, 3.499483297}, Row{0.001, 4, 7.173182219}, Row{0.0005, 1, 636.619248769},
        Row{0.05, 3, 2.353363435}, Row{0.25, 1, 1}})
    CHECK(student_quantile(tail, degrees) == Approx(value).epsilon(1e-8));
  CHECK(student_quantile(0.5, 4) == Approx(0).margin(1e-9));
  CHECK(normal_quantile(0.025) == Approx(1.959963985).epsilon(1e-9));
  CHECK(normal_quantile(0.005) == Approx(2.575829304).epsilon(1e-9));
  CHECK(normal_quantile(1e-6) == Approx(4.753424309).epsilon(1e-9));
  CHECK(student_quantile(0.001, 1e7) == Approx(normal_quantile(0.001)).epsilon(1e-6));
}

TEST_CASE("tails of Student's t match closed formulas") {
  for (const double t : {-30.0, -2.0, -0.1, 0.0, 1e-6, 0.3, 1.0, 2.5, 40.0, 1e4}) {
    CAPTURE(t);
    CHECK(student_tail(t, 1) == Approx(0.5 - std::atan(t) / std::numbers::pi).epsilon(1e-9));
    CHECK(student_tail(t, 2) == Approx(0.5 - t / (2 * std::sqrt(2 + t * t))).epsilon(t > 1e3 ? 1e-4 : 1e-9));
    CHECK(student_tail(t, 7) + student_tail(-t, 7) == Approx(1));
  }
  for (const double degrees : {1.0, 3.0, 20.0, 500.0})
    for (const double tail : {0.4, 0.1, 1e-3, 1e-6})
      CHECK(student_tail(student_quantile(tail, degrees), degrees) == Approx(tail).epsilon(1e-6));
  CHECK_THROWS_AS(student_tail(1, 0), BrokenInvariant);
  CHECK_THROWS_AS(student_quantile(0.6, 3), BrokenInvariant);
  CHECK_THROWS_AS(normal_quantile(0), BrokenInvariant);
}
