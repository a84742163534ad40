#include "statistics/verdict.h"

#include "base/error.h"
#include "simulate.h"
#include "statistics/signed_rank.h"
#include "support/catch.h"

#include <algorithm>
#include <cmath>

using namespace trainopt;
using namespace trainopt::test;

namespace {

/// The error that may have been spent by looks 0, 1, … of a budget of 5 %.
constexpr double kSpent[] = {0, 0.001, 0.002, 0.004, 0.01, 0.025, 0.0325};

/// A measurement of two turns per arm that took equally long.
Measurement even(double a, double b) { return {.seconds_per_sample = {a, b}, .longest_turn = {a, b}, .turns = 2}; }

/// Normal log ratios around log(`ratio`), without further variation between the turns of a measurement.
std::vector<Measurement> normal(double ratio, double sd, int64_t count, uint64_t seed) {
  PhiloxStream random(mix_key(seed, "measurements"));
  std::vector<Measurement> result;
  for (int64_t i = 0; i < count; ++i) {
    const double half = (std::log(ratio) + sd * random.next_normal()) / 2;
    result.push_back(even(std::exp(half), std::exp(-half)));
  }
  return result;
}

/// The allowance for the slowest turn of one arm if the other has none like it: twice its excess, which is half as much
/// in the unit of a measurement of two turns.
PairedTimes stall_allowance(const std::vector<Measurement>& measurements, int64_t count) {
  PairedTimes total, longest;
  for (int64_t i = 0; i < count; ++i) {
    const auto& [times, turns, _] = measurements[static_cast<size_t>(i)];
    total = {total.a + times.a, total.b + times.b};
    longest = {std::max(longest.a, turns.a), std::max(longest.b, turns.b)};
  }
  const auto n = static_cast<double>(count);
  const double beyond = longest.a - total.a / n - (longest.b - total.b / n);
  return {std::max(beyond, 0.0), std::max(-beyond, 0.0)};
}

std::vector<PairedTimes> times(const std::vector<Measurement>& measurements, int64_t count) {
  std::vector<PairedTimes> pairs;
  for (int64_t i = 0; i < count; ++i) pairs.push_back(measurements[static_cast<size_t>(i)].seconds_per_sample);
  return pairs;
}

/// The number of measurements until the verdict is decided, without a last look. 0: not decided after all of them.
int64_t decided_after(const std::vector<Measurement>& measurements, const SequentialOptions& options) {
  SequentialVerdict sequential(options);
  for (const Measurement& measurement : measurements) {
    sequential.add(measurement);
    if (sequential.decided()) return sequential.measurements();
  }
  return 0;
}

}  // namespace

TEST_CASE("an interval determines the verdict") {
  CHECK(judge({1.02, 1.05}, 0.01) == Verdict::pays);
  CHECK(judge({0.90, 0.99}, 0.01) == Verdict::costs);
  CHECK(judge({0.98, 1.05}, 0.01) == Verdict::inconclusive);
  CHECK(judge({0.995, 1.005}, 0.01) == Verdict::no_effect);
  CHECK(judge({1.001, 1.005}, 0.01) == Verdict::no_effect);  // real but too small to matter
  CHECK(judge({1 / 1.01, 1.01}, 0.01) == Verdict::no_effect);
  CHECK(judge({1.005, 1.02}, 0.01) == Verdict::pays);
  CHECK(judge({1.0, 1.02}, 0.01) == Verdict::inconclusive);
  CHECK(judge({1.001, 1.002}, 0) == Verdict::pays);
  CHECK(text(Verdict::no_effect) == "no effect");
  CHECK(text(Verdict::pays) == "pays");
  CHECK(text(Verdict::costs) == "costs");
  CHECK(text(Verdict::inconclusive) == "inconclusive");
}

TEST_CASE("looks happen only at their measurements, with their shares of the budget") {
  const int64_t looks[] = {8, 12, 18, 27, 40, 60, 90, 135};
  for (int i = 0; i < 8; ++i) CHECK(measurements_at_look(i) == looks[i]);

  const SequentialOptions options{.longest_stall = 0, .seed = 11};
  const std::vector<Measurement> measurements = normal(1.05, 0.1, 100, 1);
  SequentialVerdict sequential(options);
  SignFlipTest twin(0.05, options.seed);
  const auto same = [&] {
    int rejected = 0;
    for (double ratio = 0.8; ratio < 1.4; ratio *= 1.01) {
      const bool rejects = twin.rejects_as_too_low(ratio) || twin.rejects_as_too_high(ratio);
      CHECK(sequential.rejects(ratio) == rejects);
      rejected += rejects;
    }
    return rejected;
  };
  int looked = 0;
  for (const Measurement& measurement : measurements) {
    sequential.add(measurement);
    if (sequential.measurements() != looks[looked]) continue;
    twin.look(times(measurements, looks[looked]), kSpent[looked], stall_allowance(measurements, looks[looked]));
    CHECK(sequential.spent() == Approx(kSpent[looked]));
    CHECK((same() > 0) == (looked > 0));
    ++looked;
  }
  CHECK(looked == 7);
  sequential.finish();
  twin.look(times(measurements, 100), 0.05, stall_allowance(measurements, 100));  // the rest of the budget
  CHECK(sequential.spent() == Approx(0.05));
  CHECK(same() > 30);
  CHECK(sequential.turns() == 200);
  CHECK_THROWS_AS(sequential.add(even(1, 1)), BrokenInvariant);
  CHECK_THROWS_AS(sequential.finish(), BrokenInvariant);
}

TEST_CASE("the interval contains the ratios that no look rejects") {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    SequentialVerdict sequential({.seed = seed});
    for (const Measurement& measurement : normal(1.03, 0.05, 60, seed)) sequential.add(measurement);
    sequential.finish();
    const auto interval = sequential.interval();
    REQUIRE(interval);
    CHECK(interval->contains(sequential.ratio()));
    for (const double inside : {1e-6, 0.2, 0.8, 1 - 1e-6})
      CHECK_FALSE(sequential.rejects(interval->low + inside * (interval->high - interval->low)));
    for (const double outside : {1e-6, 1e-3, 0.1}) {
      CHECK(sequential.rejects(interval->low - outside));
      CHECK(sequential.rejects(interval->high + outside));
    }
    CHECK(judge(*interval, 0.01) == sequential.verdict());
  }
}

TEST_CASE("the ratio is that of total times including slow turns; the typical ratio is not affected by them") {
  SequentialVerdict sequential({.longest_stall = 0, .seed = 1});
  PhiloxStream random(1);
  for (int i = 0; i < 60; ++i) {
    const double usual = std::exp(0.01 * random.next_normal());
    sequential.add(even(usual, i % 6 == 0 ? 4 : 1));
  }
  CHECK(sequential.ratio() == Approx(60.0 / 90).epsilon(0.01));
  REQUIRE((sequential.interval() && sequential.typical_interval()));
  CHECK(sequential.interval()->contains(60.0 / 90));
  CHECK(sequential.interval()->high < 0.95);
  CHECK(sequential.typical_interval()->contains(0.999));
  CHECK(sequential.typical_interval()->low > 0.95);
}

TEST_CASE("the typical interval is the intersection of the signed-rank intervals of all looks") {
  const std::vector<Measurement> measurements = normal(1.05, 0.1, 60, 3);
  SequentialVerdict sequential({});
  for (const Measurement& measurement : measurements) sequential.add(measurement);
  std::vector<double> logs;
  for (const auto& m : measurements) logs.push_back(std::log(m.seconds_per_sample.a / m.seconds_per_sample.b));
  Interval expected{0, INFINITY};
  for (int look = 1; look < 6; ++look) {
    const auto count = static_cast<size_t>(measurements_at_look(look));
    const auto now = signed_rank_interval(std::span(logs).first(count), 1 - (kSpent[look] - kSpent[look - 1]));
    if (now) expected = {std::max(expected.low, std::exp(now->low)), std::min(expected.high, std::exp(now->high))};
  }
  REQUIRE(sequential.typical_interval());
  CHECK(sequential.typical_interval()->low == Approx(expected.low));
  CHECK(sequential.typical_interval()->high == Approx(expected.high));
}

TEST_CASE("few measurements have no interval, or one only at the last look") {
  SequentialVerdict none({});
  none.finish();
  CHECK(none.verdict() == Verdict::inconclusive);
  CHECK_FALSE(none.interval());
  CHECK_FALSE(none.typical_interval());

  SequentialVerdict eight({});  // the first look spends nothing
  for (const Measurement& measurement : normal(1.5, 0.01, 8, 1)) eight.add(measurement);
  CHECK_FALSE(eight.interval());

  for (const int64_t count : {5, 6}) {
    SequentialVerdict few({});
    for (const Measurement& measurement : normal(1.5, 0.01, count, 1)) few.add(measurement);
    CHECK_FALSE(few.decided());
    CHECK(few.ratio() == Approx(1.5).epsilon(0.05));
    few.finish();
    // 2/32 > 0.05, but 2/64 < 0.05.
    CHECK(few.verdict() == (count == 6 ? Verdict::pays : Verdict::inconclusive));
    CHECK(few.interval().has_value() == (count == 6));
  }
}

TEST_CASE("a decision is refined by later measurements, never withdrawn") {
  int refined = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SequentialVerdict sequential({.longest_stall = 0, .seed = seed});
    Verdict before = Verdict::inconclusive;
    for (const Measurement& measurement : normal(1.006, 0.01, 200, seed)) {
      sequential.add(measurement);
      const Verdict now = sequential.verdict();
      if (before == Verdict::no_effect) REQUIRE(now == Verdict::no_effect);
      if (before == Verdict::pays) REQUIRE((now == Verdict::pays || now == Verdict::no_effect));
      refined += before == Verdict::pays && now == Verdict::no_effect;
      before = now;
    }
  }
  CHECK(refined > 10);
}

TEST_CASE("with a precision, measuring continues after the first decision") {
  const std::vector<Measurement> measurements = normal(1.1, 0.03, 300, 7);
  SequentialVerdict unlimited({.seed = 1}), precise({.precision = 0.007, .seed = 1});
  int64_t decision_after = 0, precision_after = 0;
  for (const Measurement& measurement : measurements) {
    unlimited.add(measurement);
    precise.add(measurement);
    if (decision_after == 0 && unlimited.decided()) decision_after = unlimited.measurements();
    if (precision_after > 0 || !precise.decided()) continue;
    precision_after = precise.measurements();
    CHECK(precise.interval()->high <= 1.007 * precise.ratio());
    CHECK(precise.interval()->low >= precise.ratio() / 1.007);
  }
  CHECK(decision_after == 60);
  CHECK(precision_after >= 90);
  CHECK(precise.verdict() == Verdict::pays);
}

TEST_CASE("few turns decide only a large effect, because they cannot show how often B stalls") {
  // Within 115 turns, stalls in one of 50 turns are seen with a probability of 90 %.
  CHECK(stalls_missed(kTurnsToSeeStalls) == Approx(kStallEvery).epsilon(0.01));
  CHECK(std::pow(1 - 1 / stalls_missed(300), 300) == Approx(0.1).epsilon(0.02));
  const auto after = [](double ratio, double longest_stall) {
    return decided_after(normal(ratio, 0.003, 60, 1), {.longest_stall = longest_stall, .seed = 1});
  };
  CHECK(after(1.02, 0) == 12);
  CHECK(after(1.02, 9) == 60);
  CHECK(after(1.2, 9) == 60);
  CHECK(after(1.3, 9) == 40);  // 9·2.30 / 80 = 26 %
  CHECK(after(2.0, 9) == 12);  // 9·2.30 / 24 = 86 %
  CHECK(after(1.2, 1) == 12);
  CHECK(after(1 / 1.2, 9) == 60);
  CHECK(after(1 / 1.3, 9) == 40);

  // A last look has no allowance for undetected stalls; the report says which it may have missed.
  SequentialVerdict last({.seed = 1});
  for (const Measurement& measurement : normal(1.02, 0.003, 20, 1)) last.add(measurement);
  CHECK_FALSE(last.decided());
  last.finish();
  CHECK(last.verdict() == Verdict::pays);
}

TEST_CASE("a slow turn delays the verdict only if it is in the faster arm alone") {
  const auto verdict = [](double slow_a, double slow_b, double ratio) {
    std::vector<Measurement> measurements = normal(ratio, 0.01, 60, 1);
    for (Measurement& measurement : measurements) measurement.longest_turn = measurement.seconds_per_sample;
    measurements[30].longest_turn.a *= slow_a;
    measurements[30].longest_turn.b *= slow_b;
    SequentialVerdict sequential({.seed = 1});
    for (const Measurement& measurement : measurements) sequential.add(measurement);
    return sequential.verdict();
  };
  // A turn that takes three times as long, counted twice more: 2·2 of 120 turns are 3.3 %.
  CHECK(verdict(1, 1, 1.03) == Verdict::pays);
  CHECK(verdict(1, 3, 1.03) == Verdict::inconclusive);
  CHECK(verdict(3, 3, 1.03) == Verdict::pays);
  CHECK(verdict(3, 1, 1.03) == Verdict::pays);
  CHECK(verdict(1, 3, 1.06) == Verdict::pays);
  CHECK(verdict(3, 1, 1 / 1.03) == Verdict::inconclusive);
  CHECK(verdict(1, 3, 1 / 1.03) == Verdict::costs);
  CHECK(verdict(1, 3, 1) == Verdict::inconclusive);  // not no_effect either
  CHECK(verdict(1, 1, 1) == Verdict::no_effect);
}

TEST_CASE("the predicted number of measurements is enough", "[rates]") {
  const int64_t count = trials(150, 2000);
  for (const bool stalls : {false, true})
    for (const double sd : {0.003, 0.01, 0.03})
      for (const double ratio : {1.0, 1.01}) {
        SequentialOptions options{.longest_stall = stalls ? 9.0 : 0.0};
        const int64_t needed = measurements_needed(sd, options);
        int64_t decided = 0, earlier = 0;
        for (int64_t trial = 0; trial < count; ++trial) {
          options.seed = static_cast<uint64_t>(trial);
          const int64_t after = decided_after(normal(ratio, sd, needed, options.seed), options);
          decided += after > 0;
          earlier += after > 0 && after <= needed / 2;
        }
        INFO("sd " << sd << ", ratio " << ratio << ": " << needed << " measurements decide "
                   << 100.0 * static_cast<double>(decided) / static_cast<double>(count) << " %, half of them "
                   << 100.0 * static_cast<double>(earlier) / static_cast<double>(count) << " %");
        CHECK_FALSE(exceeds(count - decided, count, ratio > 1 ? 0.15 : 0.2));
        CHECK(static_cast<double>(earlier) < 0.8 * static_cast<double>(count));
      }
  CHECK(measurements_needed(0, {.longest_stall = 0}) == 12);  // the first look that may decide anything
  CHECK(measurements_needed(0, {}) == 60);                    // the first with enough turns to see stalls
  CHECK(measurements_needed(0, {}, 6) == 27);                 // with six turns of each arm per measurement
  CHECK(measurements_needed(0.01, {.level = 0.99}) >= measurements_needed(0.01, {}));
}
