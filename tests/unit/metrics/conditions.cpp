#include "metrics/conditions.h"

#include "base/philox.h"
#include "support/catch.h"

using namespace trainopt;

namespace {

StepRecord row_with_load(double step_ms, std::optional<double> other_cpu_pct, std::optional<double> throttle = {}) {
  StepRecord row;
  row[Metric::step_ms] = step_ms;
  row[Metric::other_cpu_pct] = other_cpu_pct;
  row[Metric::gpu_throttle] = throttle;
  return row;
}

/// Steps of 0.1 s ± 3 %; `change`: how much longer the last takes than the first.
std::vector<Piece> steps(size_t count, double change, uint64_t seed) {
  PhiloxStream random(seed);
  std::vector<Piece> pieces;
  for (size_t i = 0; i < count; ++i)
    pieces.push_back({32, 0.1 * (1 + 0.03 * random.next_normal()) *
                              (1 + change * static_cast<double>(i) / static_cast<double>(count))});
  return pieces;
}

}  // namespace

TEST_CASE("a machine is busy if others used more than a tenth of it, weighted by step time") {
  Conditions quiet, busy;
  for (const auto& [conditions, share] : {std::pair{&quiet, 38.0}, {&busy, 44.0}}) {
    conditions->add(row_with_load(10, share));
    conditions->add(row_with_load(30, 0));
    conditions->add(row_with_load(1000, std::nullopt));  // unknown is not zero
  }
  CHECK(quiet.warnings({}).empty());
  REQUIRE(busy.warnings({}).size() == 1);
  CHECK_THAT(busy.warnings({})[0], ContainsSubstring("used 11 % of the CPUs available"));
}

TEST_CASE("the warning of a throttled GPU names the reasons") {
  Conditions free, held;
  free.add(row_with_load(10, 0, 0));
  CHECK(free.warnings({}).empty());
  held.add(row_with_load(10, 0, 4));
  held.add(row_with_load(10, 0, 4 | 64));
  held.add(row_with_load(20, 0, 0));
  REQUIRE(held.warnings({}).size() == 1);
  CHECK(held.warnings({})[0] ==
        "the GPU's clock was throttled in steps that make up 50 % of the time (power cap, heat)");
  CHECK(Conditions().warnings({}).empty());
}

TEST_CASE("allocations retried after the first measured step are counted and warned of") {
  Conditions settled, full, unknown;
  for (const double retries : {2.0, 2.0, 2.0}) {  // two before the first measured step
    StepRecord row = row_with_load(10, 0);
    row[Metric::alloc_retries] = retries;
    settled.add(row);
  }
  CHECK(settled.alloc_retries() == 0);
  CHECK(settled.warnings({}).empty());
  for (const double retries : {5.0, 6.0, 2.0}) {  // the order in which steps are added does not count
    StepRecord row = row_with_load(10, 0);
    row[Metric::alloc_retries] = retries;
    full.add(row);
  }
  CHECK(full.alloc_retries() == 4);
  REQUIRE(full.warnings({}).size() == 1);
  CHECK_THAT(full.warnings({})[0], ContainsSubstring("had to empty its cache for 4 allocations"));
  unknown.add(row_with_load(10, 0));
  CHECK(!unknown.alloc_retries());
}

TEST_CASE("a run that drifts is distinguished from one that is noisy") {
  int steady = 0, small = 0, drifting = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    steady += !Conditions().warnings(steps(60, 0, seed)).empty();
    small +=
        !Conditions().warnings(steps(600, 0.02, seed)).empty();  // significant, but the thirds are only 1.3 % apart
    drifting += !Conditions().warnings(steps(150, 0.15, seed)).empty();
  }
  CHECK(steady <= 3);
  CHECK(small == 0);
  CHECK(drifting >= 97);
  CHECK_THAT(Conditions().warnings(steps(150, 0.15, 1)).at(0), ContainsSubstring("fell by 9 %"));
  CHECK(Conditions().warnings(steps(23, 0.9, 1)).empty());  // thirds of seven pieces are too small
}
