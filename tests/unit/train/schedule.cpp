#include "train/schedule.h"
#include "support/catch.h"

using namespace trainopt;

TEST_CASE("linear and cosine rise, fall and end at zero") {
  const Schedule linear({.name = ScheduleKind::linear, .warmup_steps = 4}, 0.1, 12);
  CHECK(linear.learning_rate(1) == 0.0);  // n = 0: Hugging Face starts a warm-up at 0
  CHECK(linear.learning_rate(3) == Approx(0.05));
  CHECK(linear.learning_rate(5) == Approx(0.1));
  CHECK(linear.learning_rate(9) == Approx(0.05));
  CHECK(linear.factor(12) == 0.0);
  CHECK(linear.factor(40) == 0.0);

  const Schedule cosine({.name = ScheduleKind::cosine, .warmup_steps = 2}, 1.0, 10);
  CHECK(cosine.factor(1) == Approx(0.5));
  CHECK(cosine.factor(2) == Approx(1.0));
  CHECK(cosine.factor(4) == Approx(0.5 * (1 + std::sqrt(0.5))));
  CHECK(cosine.factor(6) == Approx(0.5));
  CHECK(cosine.factor(10) == Approx(0.0).margin(1e-12));
}

TEST_CASE("a constant schedule stays constant after warm-up") {
  const Schedule schedule({.warmup_steps = 5}, 0.2, 0);
  CHECK(schedule.learning_rate(1) == 0.0);
  CHECK(schedule.learning_rate(6) == Approx(0.2));
  CHECK(schedule.learning_rate(1000000) == Approx(0.2));
  CHECK(Schedule({}, 0.3, 0).learning_rate(1) == Approx(0.3));
}
