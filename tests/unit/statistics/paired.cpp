#include "statistics/paired.h"

#include "base/philox.h"
#include "simulate.h"
#include "support/catch.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace trainopt;
using namespace trainopt::test;

namespace {

std::vector<double> paired_differences(size_t count, uint64_t seed, double spread = 0.03) {
  PhiloxStream random(seed);
  std::vector<double> values(count);
  for (double& value : values) value = 0.02 + spread * random.next_normal() * random.next_uniform(0.2, 2);
  return values;
}

/// Reference implementation: whether the sign-flip test rejects the mean `centre`, using all 2^n sign patterns.
bool paired_rejects(const std::vector<double>& differences, double centre, double level) {
  const uint32_t patterns = 1u << differences.size();
  double sum = 0;
  for (const double difference : differences) sum += difference - centre;
  uint32_t as_high = 0, as_low = 0;
  for (uint32_t pattern = 0; pattern < patterns; ++pattern) {
    double flipped = 0;
    for (size_t i = 0; i < differences.size(); ++i) flipped += (pattern >> i & 1 ? -1 : 1) * (differences[i] - centre);
    as_high += pattern == 0 || flipped >= sum;
    as_low += pattern == 0 || flipped <= sum;
  }
  return std::min(as_high, as_low) <= (1 - level) / 2 * patterns + 1e-9;
}

}  // namespace

TEST_CASE("the interval contains exactly the means that a sign-flip test over all patterns does not reject") {
  for (const size_t count : {6u, 8u, 11u})
    for (const double level : {0.5, 0.95, 0.96})
      for (uint64_t seed = 0; seed < 5; ++seed) {
        const std::vector<double> differences = paired_differences(count, seed);
        const auto interval = paired_interval(differences, level, seed);
        REQUIRE(interval);
        CAPTURE(count, level, seed, interval->low, interval->high);
        for (const double inside : {1e-9, 0.01, 0.3, 0.7, 0.99, 1 - 1e-9})
          CHECK_FALSE(paired_rejects(differences, interval->low + inside * (interval->high - interval->low), level));
        for (const double outside : {1e-9, 0.01, 0.2}) {
          CHECK(paired_rejects(differences, interval->low - outside * 0.1, level));
          CHECK(paired_rejects(differences, interval->high + outside * 0.1, level));
        }
      }
}

TEST_CASE("with many blocks the interval approaches that of the percentile bootstrap") {
  for (const size_t count : {150u, 600u}) {
    const std::vector<double> differences = paired_differences(count, count);
    PhiloxStream random(5);
    std::vector<double> means(20000);
    for (double& mean : means) {
      for (size_t i = 0; i < count; ++i) mean += differences[random.next_below(count)];
      mean /= static_cast<double>(count);
    }
    std::sort(means.begin(), means.end());
    const double low = means[500], high = means[19499];
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const auto interval = paired_interval(differences, 0.95, seed);
      REQUIRE(interval);
      CHECK(interval->low == Approx(low).margin(0.08 * (high - low)));
      CHECK(interval->high == Approx(high).margin(0.08 * (high - low)));
    }
  }
}

TEST_CASE("there is no interval if the level cannot be reached") {
  const std::vector<double> differences = paired_differences(8, 1);
  CHECK_FALSE(paired_interval({}, 0.95, 0));
  CHECK_FALSE(paired_interval(std::span(differences).first(5), 0.95, 0));  // 2/32 > 0.05
  CHECK(paired_interval(std::span(differences).first(6), 0.95, 0));        // 2/64 < 0.05
  CHECK_FALSE(paired_interval(differences, 0.995, 0));
  // Exactly 2/256: from the smallest difference to the largest.
  const auto widest = paired_interval(differences, 1 - 2.0 / 256, 0);
  REQUIRE(widest);
  CHECK(widest->low == Approx(*std::min_element(differences.begin(), differences.end())));
  CHECK(widest->high == Approx(*std::max_element(differences.begin(), differences.end())));
  CHECK_FALSE(paired_interval(paired_differences(100, 1), 1 - 1e-9, 0));
}

TEST_CASE("the interval shifts and scales with the differences, and contains their mean") {
  const std::vector<double> differences = paired_differences(30, 3);
  std::vector<double> moved;
  for (const double difference : differences) moved.push_back(-2 * difference + 1);
  const auto interval = paired_interval(differences, 0.99, 4), other = paired_interval(moved, 0.99, 4);
  REQUIRE((interval && other));
  CHECK(other->low == Approx(-2 * interval->high + 1));
  CHECK(other->high == Approx(-2 * interval->low + 1));
  CHECK(interval->contains(std::accumulate(differences.begin(), differences.end(), 0.0) / 30));
  CHECK(paired_interval(std::vector<double>(20, 0.25), 0.95, 0)->high == Approx(0.25));
}

/// Log ratios of `blocks` blocks.
std::vector<double> log_ratios(const Noise& noise, int64_t blocks, uint64_t seed, OrderRule order = block_order) {
  std::vector<double> logs;
  for (const Measurement& m : simulate(noise, 1.03, blocks, seed, order))
    logs.push_back(std::log(m.seconds_per_sample.a / m.seconds_per_sample.b));
  return logs;
}

TEST_CASE("coverage is exact for any noise that both arms share", "[rates]") {
  const int64_t count = trials(500, 4000);
  for (const Noise& noise : noises()) {
    if (noise.one_arm) continue;
    for (const int64_t blocks : {7, 9, 30}) {
      int64_t missed = 0;
      for (int64_t trial = 0; trial < count; ++trial) {
        const auto seed = static_cast<uint64_t>(trial);
        missed += !paired_interval(log_ratios(noise, blocks, seed), 0.95, seed)->contains(std::log(1.03));
      }
      // The share of the gaps between subset means, as many as fit into 5 %.
      const double gaps = std::pow(2.0, std::min<double>(static_cast<double>(blocks), 12));
      const double promised = 2 * std::floor(0.025 * gaps) / gaps;
      INFO(noise.name << ", " << blocks << " blocks: " << missed << " of " << count << " missed, promised "
                      << 100 * promised << " %");
      CHECK_FALSE(exceeds(missed, count, promised));
      CHECK_FALSE(exceeds(count - missed, count, 1 - promised));
    }
  }
}

TEST_CASE("coverage is lost without the coin toss") {
  int64_t missed = 0;
  for (uint64_t seed = 0; seed < 500; ++seed)
    missed += !paired_interval(log_ratios(every_fourth(), 30, seed, always_abba), 0.95, seed)->contains(std::log(1.03));
  CHECK(exceeds(missed, 500, 0.5));
}
