#include "statistics/student.h"

#include "support/catch.h"

#include <cmath>

using namespace trainopt;

TEST_CASE("quantiles of Student's t are those of the tables") {
  CHECK(student_quantile(0.025, INFINITY) == Approx(1.959964).epsilon(1e-6));
  CHECK(student_quantile(0.5, INFINITY) == Approx(0).margin(1e-9));
  CHECK(student_quantile(0.025, 4) == Approx(2.776).epsilon(0.01));
  CHECK(student_quantile(0.025, 10) == Approx(2.228).epsilon(0.001));
  CHECK(student_quantile(0.001, 4) == Approx(7.173).epsilon(0.04));
  CHECK(student_quantile(0.005, 7) == Approx(3.499).epsilon(0.01));
}
