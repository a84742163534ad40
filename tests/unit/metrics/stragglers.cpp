#include "metrics/stragglers.h"

#include "metrics/summary.h"
#include "support/catch.h"

using namespace trainopt;

namespace {

/// All ranks' steps end together, so a faster rank waits for the difference.
std::vector<RankTimes> times(std::vector<double> busy) {
  const double step = *std::max_element(busy.begin(), busy.end());
  std::vector<RankTimes> ranks;
  for (const double each : busy) ranks.push_back({.step_ms = step, .data_wait_ms = 0, .comm_exposed_ms = step - each});
  return ranks;
}

}  // namespace

TEST_CASE("a rank that the others wait for is named, with both times") {
  Stragglers stragglers;
  for (int step = 0; step < 20; ++step) stragglers.add(step < 15 ? times({10, 11, 30, 10}) : times({10, 10, 10, 10}));
  const auto found = stragglers.found();
  REQUIRE(found);
  CHECK(found->rank == 2);
  CHECK(found->busy_ms == Approx(30));
  CHECK(found->others_ms == Approx(10));
  CHECK(found->steps_pct == Approx(75));
  CHECK(found->text() ==
        "rank 2 is a straggler: 30.0 ms a step without communication, the others 10.0 ms; the slowest in 75 % of the "
        "steps");
}

TEST_CASE("a straggler that waits for data is reported as such") {
  Stragglers stragglers;
  for (int step = 0; step < 10; ++step) {
    auto ranks = times({10, 40});
    ranks[1].data_wait_ms = 28;
    stragglers.add(ranks);
  }
  REQUIRE(stragglers.found());
  CHECK_THAT(stragglers.found()->text(), ContainsSubstring("; 28.0 ms of its time is waiting for data"));
}

TEST_CASE("there is no straggler among equal ranks, ranks slow in turn, too few steps or one rank") {
  const auto found = [](int steps, auto times_of) {
    Stragglers stragglers;
    for (int step = 0; step < steps; ++step) stragglers.add(times_of(step));
    return stragglers.found().has_value();
  };
  CHECK_FALSE(found(100, [](int) { return times({10, 10.5, 10.9}); }));
  CHECK_FALSE(found(100, [](int step) { return step % 2 == 0 ? times({10, 30}) : times({30, 10}); }));
  CHECK_FALSE(found(9, [](int) { return times({10, 30}); }));
  CHECK(found(10, [](int) { return times({10, 30}); }));
  CHECK_FALSE(found(100, [](int) { return times({10}); }));
  CHECK_FALSE(found(0, [](int) { return times({10, 30}); }));
}

TEST_CASE("the summary names a straggler of the measured steps") {
  Summary summary(5);
  for (int step = 0; step < 40; ++step) {
    StepRecord row;
    row[Metric::step_ms] = 30;
    row.step_samples = 8;
    row.ranks = times({10, 30});
    if (step < 5) row.ranks = times({300, 10});  // excluded as warm-up
    summary.add(row);
  }
  CHECK(summary.to_json().at("straggler") ==
        Json{{"rank", 1}, {"busy_ms", 30.0}, {"others_ms", 10.0}, {"data_wait_ms", 0.0}, {"steps_pct", 100.0}});
  CHECK_THAT(summary.table({}), ContainsSubstring("rank 1 is a straggler"));
  CHECK(Summary(5).to_json().at("straggler").is_null());
}
