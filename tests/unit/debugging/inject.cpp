// Injected stragglers, without a clock: the delay is computed from given times.
#include "debugging/inject.h"

#include "support/catch.h"
#include "support/plans.h"

using namespace trainopt;
using namespace trainopt::test;

TEST_CASE("a straggler is delayed by 5 % of its median step before, from the named step on") {
  StragglerDelay delay(6);
  const std::array before{9.0, 0.2, 0.1, 0.3, 0.2};  // the first step includes one-off work
  for (size_t i = 0; i < before.size(); ++i) CHECK(delay.after(static_cast<int64_t>(i) + 1, before[i]) == 0);
  CHECK(delay.after(6, 0.2) == Approx(0.01));
  CHECK(delay.after(7, 5.0) == Approx(0.01));  // the steps that it delays change nothing
  CHECK(delay.after(100, 0.1) == Approx(0.01));
}

TEST_CASE("a straggler whose steps before were not measured is refused") {
  StragglerDelay resumed(10);
  for (const int64_t step : {7, 8, 9}) resumed.after(step, 0.1);
  CHECK_THROWS_WITH(resumed.after(10, 0.1), ContainsSubstring("straggle@10, measured 3, needed 4"));
}

TEST_CASE("straggle takes a step of 5 or later, and a rank") {
  const Injection one = parse_injection("straggle@5:1");
  CHECK(one.fault == InjectedFault::straggle);
  CHECK(one.step == 5);
  CHECK(one.rank == 1);
  CHECK_FALSE(parse_injection("straggle@20").rank);
  for (const char* text : {"straggle@4", "straggle@20+", "straggle@1:1"})
    CHECK_THROWS_WITH(parse_injection(text), ContainsSubstring("name step 5 or a later one"));
}

TEST_CASE("an injected straggler trains the same numbers") {
  const auto losses = [](const std::vector<Injection>& faults) {
    Plan plan = small_plan(8);
    inject(plan, faults);
    Rows rows;
    Trainer(plan, {}, rows, never_stopped()).run();
    return rows.losses();
  };
  CHECK(losses({parse_injection("straggle@5")}) == losses({}));
}
