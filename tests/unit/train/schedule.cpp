// Schedules against values worked out by hand. tests/oracle compares each with PyTorch over whole runs.
#include "base/error.h"
#include "support/catch.h"
#include "train/optimizer/schedule.h"

#include <cmath>

using namespace trainopt;
using Catch::Matchers::Contains;

namespace {

double rate(const Schedule& schedule, int64_t step) { return schedule.at(step).learning_rate; }

}  // namespace

TEST_CASE("linear and cosine rise, fall and end at zero") {
  const Schedule linear({.schedule = LinearSchedule{}, .warmup_steps = 4}, 0.1, 12);
  CHECK(rate(linear, 1) == 0.0);  // Hugging Face starts a warm-up at 0
  CHECK(rate(linear, 3) == Approx(0.05));
  CHECK(rate(linear, 5) == Approx(0.1));
  CHECK(rate(linear, 9) == Approx(0.05));
  CHECK(rate(linear, 13) == 0.0);
  CHECK(rate(linear, 41) == 0.0);

  const Schedule cosine({.schedule = CosineSchedule{}, .warmup_steps = 2}, 1.0, 10);
  CHECK(rate(cosine, 2) == Approx(0.5));
  CHECK(rate(cosine, 3) == Approx(1.0));
  CHECK(rate(cosine, 5) == Approx(0.5 * (1 + std::sqrt(0.5))));
  CHECK(rate(cosine, 7) == Approx(0.5));
  CHECK(rate(cosine, 11) == Approx(0.0).margin(1e-12));
}

TEST_CASE("a constant schedule stays constant after warm-up") {
  const Schedule schedule({.warmup_steps = 5}, 0.2, 0);
  CHECK(rate(schedule, 1) == 0.0);
  CHECK(rate(schedule, 6) == Approx(0.2));
  CHECK(rate(schedule, 1000000) == Approx(0.2));
  CHECK(rate(Schedule({}, 0.3, 0), 1) == Approx(0.3));
}

TEST_CASE("one cycle moves rate and momentum against each other, and stays at its end") {
  const Schedule schedule({.schedule = OneCycleSchedule{.pct_start = 0.5}}, 1.0, 10);
  CHECK(rate(schedule, 1) == Approx(1.0 / 25));
  CHECK(*schedule.at(1).momentum == Approx(0.95));
  CHECK(rate(schedule, 5) == Approx(1.0));  // after 0.5 · 10 − 1 steps
  CHECK(*schedule.at(5).momentum == Approx(0.85));
  CHECK(rate(schedule, 10) == Approx(1.0 / 25 / 1e4));
  CHECK(*schedule.at(10).momentum == Approx(0.95));
  CHECK(rate(schedule, 99) == rate(schedule, 10));
}

TEST_CASE("momentum is left alone unless it is cycled") {
  CHECK(!Schedule({}, 1.0, 10).at(1).momentum);
  OneCycleSchedule without;
  without.momentum.cycle_momentum = false;
  CHECK(!Schedule({.schedule = without}, 1.0, 10).at(1).momentum);
}

TEST_CASE("a warm-up comes before any schedule, which then starts from its beginning") {
  const Schedule steps({.schedule = StepSchedule{.step_size = 10, .gamma = 0.5}, .warmup_steps = 4}, 1.0, 0);
  CHECK(rate(steps, 1) == 0.0);
  CHECK(rate(steps, 3) == Approx(0.5));
  CHECK(rate(steps, 14) == Approx(1.0));
  CHECK(rate(steps, 15) == Approx(0.5));
}

TEST_CASE("by epochs, a schedule moves only between epochs, and a warm-up still by steps") {
  const SchedulerConfig config{
      .schedule = MultiStepSchedule{.milestones = {1, 3}}, .warmup_steps = 2, .interval = ScheduleInterval::epoch};
  const Schedule schedule(config, 1.0, 0, /*steps_per_epoch=*/5);
  CHECK(rate(schedule, 2) == Approx(0.5));
  CHECK(rate(schedule, 5) == Approx(1.0));
  CHECK(rate(schedule, 6) == Approx(0.1));
  CHECK(rate(schedule, 15) == Approx(0.1));
  CHECK(rate(schedule, 16) == Approx(0.01));

  const Schedule cosine({.schedule = CosineSchedule{}, .interval = ScheduleInterval::epoch}, 1.0, 20, 5);
  CHECK(rate(cosine, 5) == Approx(1.0));
  CHECK(rate(cosine, 6) == Approx(0.5 * (1 + std::sqrt(0.5))));
}

TEST_CASE("phases that do not fit are refused with the numbers") {
  CHECK_THROWS_WITH(Schedule({.schedule = OneCycleSchedule{}}, 1.0, 3),
                    Contains("scheduler.pct_start: 0.3 of 3 counts leave no room for two phases"));
  CHECK_THROWS_WITH(Schedule({.schedule = OneCycleSchedule{.pct_start = 0.6, .three_phase = true}}, 1.0, 100),
                    Contains("three phases"));
  CHECK_THROWS_WITH(Schedule({.schedule = WsdSchedule{.num_decay_steps = 90}, .warmup_steps = 20}, 1.0, 100),
                    Contains("longer than what the warm-up leaves: 90, 80"));
}
