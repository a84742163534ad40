#include "statistics/verdict.h"

#include "base/error.h"
#include "base/philox.h"
#include "statistics/paired.h"
#include "simulate.h"
#include "support/catch.h"

#include <cmath>

using namespace trainopt;
using namespace trainopt::test;

namespace {

std::vector<double> normal_differences(double ratio, double sd, int64_t blocks, uint64_t seed) {
  PhiloxStream random(mix_key(seed, "differences"));
  std::vector<double> values(static_cast<size_t>(blocks));
  for (double& value : values) value = std::log(ratio) + sd * random.next_normal();
  return values;
}

}  // namespace

TEST_CASE("what an interval says") {
  CHECK(judge({1.02, 1.05}, 0.01) == Verdict::pays);
  CHECK(judge({0.90, 0.99}, 0.01) == Verdict::costs);
  CHECK(judge({0.98, 1.05}, 0.01) == Verdict::inconclusive);
  CHECK(judge({0.995, 1.005}, 0.01) == Verdict::no_effect);
  CHECK(judge({1.001, 1.005}, 0.01) == Verdict::no_effect);  // real, and too small to matter
  CHECK(judge({1 / 1.01, 1.01}, 0.01) == Verdict::no_effect);
  CHECK(judge({1.005, 1.02}, 0.01) == Verdict::pays);
  CHECK(judge({1.0, 1.02}, 0.01) == Verdict::inconclusive);
  CHECK(judge({1.001, 1.002}, 0) == Verdict::pays);
  CHECK(text(Verdict::no_effect) == "no effect");
  CHECK(text(Verdict::pays) == "pays");
  CHECK(text(Verdict::costs) == "costs");
  CHECK(text(Verdict::inconclusive) == "inconclusive");
}

TEST_CASE("looks happen at their blocks only, with their shares of the budget") {
  const int64_t looks[] = {8, 12, 18, 27, 40, 60, 90, 135};
  for (int i = 0; i < 8; ++i) CHECK(blocks_at_look(i) == looks[i]);

  const SequentialOptions options{.seed = 11};
  const std::vector<double> differences = normal_differences(1, 0.5, 50, 1);
  SequentialVerdict sequential(options);
  std::optional<Interval> expected;
  const auto look = [&](double error) {
    const auto now = paired_interval(std::span(differences).first(static_cast<size_t>(sequential.blocks())), 1 - error,
                                     options.seed);
    REQUIRE(now);
    const Interval ratio{std::exp(now->low), std::exp(now->high)};
    expected = expected ? Interval{std::max(expected->low, ratio.low), std::min(expected->high, ratio.high)} : ratio;
  };
  int looked = 0;
  for (const double difference : differences) {
    sequential.add(difference);
    if (sequential.blocks() == looks[looked]) look(0.05 * 0.2 * std::pow(0.8, looked++));
    CHECK(sequential.interval() == expected);
  }
  CHECK(looked == 5);
  sequential.finish();
  look(0.05 * std::pow(0.8, 5));  // all that is left
  REQUIRE(sequential.interval());
  CHECK(sequential.interval()->low == Approx(expected->low));
  CHECK(sequential.interval()->high == Approx(expected->high));
  CHECK(sequential.interval()->contains(sequential.ratio()));
  CHECK_FALSE(sequential.decided());
  CHECK_THROWS_AS(sequential.add(0), BrokenInvariant);
  CHECK_THROWS_AS(sequential.finish(), BrokenInvariant);
}

TEST_CASE("little data: no interval, or one by the last look") {
  SequentialVerdict none({});
  none.finish();
  CHECK(none.verdict() == Verdict::inconclusive);
  CHECK_FALSE(none.interval());

  SequentialVerdict six({});
  for (const double difference : normal_differences(1.5, 0.01, 6, 1)) six.add(difference);
  CHECK_FALSE(six.decided());
  CHECK(six.ratio() == Approx(1.5).epsilon(0.05));
  six.finish();
  CHECK(six.verdict() == Verdict::pays);
}

TEST_CASE("a decision is refined by later blocks, never withdrawn") {
  int refined = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SequentialVerdict sequential({.seed = seed});
    Verdict before = Verdict::inconclusive;
    for (const double difference : normal_differences(1.006, 0.01, 200, seed)) {
      sequential.add(difference);
      if (before == Verdict::no_effect) REQUIRE(sequential.verdict() == Verdict::no_effect);
      if (before == Verdict::pays)
        REQUIRE((sequential.verdict() == Verdict::pays || sequential.verdict() == Verdict::no_effect));
      refined += before == Verdict::pays && sequential.verdict() == Verdict::no_effect;
      before = sequential.verdict();
    }
  }
  CHECK(refined > 30);
}

TEST_CASE("equal arms: wrong verdicts over all looks stay within the budget, whatever the noise", "[rates]") {
  constexpr int64_t kTrials = 10000;
  for (const Noise noise : kNoises) {
    int64_t wrong = 0, undecided = 0;
    for (uint64_t seed = 0; seed < kTrials; ++seed) {
      // The last look is between two others and spends all that is left.
      const Verdict verdict = decide(simulate(noise, 1, 100, seed), {.seed = seed}).verdict();
      wrong += verdict == Verdict::pays || verdict == Verdict::costs;
      undecided += verdict == Verdict::inconclusive;
    }
    INFO(describe(noise) << ": wrong " << 100.0 * wrong / kTrials << " %, undecided " << 100.0 * undecided / kTrials
                         << " %");
    CHECK_FALSE(exceeds(wrong, kTrials, 0.05));
  }
}

TEST_CASE("all intervals of a run hold the truth at once", "[rates]") {
  constexpr int64_t kTrials = 2000;
  int64_t missed = 0;
  for (uint64_t seed = 0; seed < kTrials; ++seed) {
    SequentialVerdict sequential({.seed = seed});
    for (const double difference : simulate(Noise::autocorrelated, 1.02, 100, seed)) sequential.add(difference);
    sequential.finish();
    missed += !sequential.interval()->contains(1.02);
  }
  INFO("missed " << 100.0 * missed / kTrials << " %");
  CHECK_FALSE(exceeds(missed, kTrials, 0.05));
}

TEST_CASE("the same harness sees what the coin and the budget prevent", "[rates]") {
  constexpr int64_t kTrials = 500;
  int64_t no_coin = 0, peeking = 0;
  for (uint64_t seed = 0; seed < kTrials; ++seed) {
    const Verdict verdict = decide(simulate(Noise::every_fourth, 1, 100, seed, always_abba), {.seed = seed}).verdict();
    no_coin += verdict == Verdict::pays || verdict == Verdict::costs;
    // A 95 % interval after every block, until it likes what it sees.
    const std::vector<double> differences = simulate(Noise::white, 1, 90, seed);
    for (size_t blocks = 8; blocks <= differences.size(); ++blocks) {
      const Interval mean = *paired_interval(std::span(differences).first(blocks), 0.95, seed);
      const Verdict seen = judge({std::exp(mean.low), std::exp(mean.high)}, 0.01);
      if (seen == Verdict::inconclusive) continue;
      peeking += seen != Verdict::no_effect;
      break;
    }
  }
  INFO("always ABBA: wrong " << 100.0 * no_coin / kTrials << " %");
  CHECK(exceeds(no_coin, kTrials, 0.05));
  INFO("a look at every block: wrong " << 100.0 * peeking / kTrials << " %");
  CHECK(exceeds(peeking, kTrials, 0.05));
}

TEST_CASE("an effect of 2 % is found within 60 blocks of 3 %", "[rates]") {
  constexpr int64_t kTrials = 4000;
  for (const double ratio : {1.02, 1 / 1.02}) {
    int64_t found = 0;
    double blocks = 0;
    for (uint64_t seed = 0; seed < kTrials; ++seed) {
      SequentialVerdict sequential({.seed = seed});
      for (const double difference : normal_differences(ratio, 0.03, 60, seed)) {
        sequential.add(difference);
        if (sequential.decided()) break;
      }
      found += sequential.verdict() == (ratio > 1 ? Verdict::pays : Verdict::costs);
      blocks += static_cast<double>(sequential.blocks()) / kTrials;
    }
    INFO(ratio << ": found in " << 100.0 * found / kTrials << " %, after " << blocks << " blocks on average");
    CHECK_FALSE(exceeds(kTrials - found, kTrials, 0.05));
  }
}

TEST_CASE("an effect of 3 % is found, and measured, on a machine that slows down by 20 %", "[rates]") {
  constexpr int64_t kTrials = 4000;
  int64_t found = 0;
  for (uint64_t seed = 0; seed < kTrials; ++seed) {
    const SequentialVerdict sequential = decide(simulate(Noise::trend, 1.03, 60, seed), {.seed = seed});
    found += sequential.verdict() == Verdict::pays && sequential.interval()->contains(1.03);
  }
  INFO("found and held in " << 100.0 * found / kTrials << " %");
  CHECK_FALSE(exceeds(kTrials - found, kTrials, 0.05));
}

TEST_CASE("as many blocks as announced are enough", "[rates]") {
  constexpr int64_t kTrials = 500;
  for (const double sd : {0.003, 0.01, 0.03})
    for (const double ratio : {1.0, 1.01}) {
      const SequentialOptions options{};
      const int64_t blocks = blocks_needed(sd, options);
      int64_t decided = 0, earlier = 0;
      for (uint64_t seed = 0; seed < kTrials; ++seed) {
        SequentialVerdict sequential({.seed = seed});
        for (const double difference : normal_differences(ratio, sd, blocks, seed)) {
          earlier += sequential.blocks() == blocks / 2 && sequential.decided();
          sequential.add(difference);
        }
        decided += sequential.decided();
      }
      INFO("sd " << sd << ", ratio " << ratio << ": " << blocks << " blocks decide " << 100.0 * decided / kTrials
                 << " %, half of them " << 100.0 * earlier / kTrials << " %");
      CHECK_FALSE(exceeds(kTrials - decided, kTrials, ratio > 1 ? 0.15 : 0.2));
      if (blocks > 8) CHECK(earlier < kTrials * 8 / 10);
    }
  CHECK(blocks_needed(0, {}) == 8);
}
