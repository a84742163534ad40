#include "statistics/signed_rank.h"

#include "simulate.h"
#include "support/catch.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace trainopt;
using namespace trainopt::test;

namespace {

std::vector<double> some_differences(size_t count, uint64_t seed) {
  PhiloxStream random(mix_key(seed, "differences"));
  std::vector<double> values(count);
  for (double& value : values) value = 0.02 + 0.03 * random.next_normal() * random.next_uniform(0.2, 2);
  return values;
}

/// Reference implementation: whether Wilcoxon's test rejects `centre`, using all 2^n sign patterns.
bool signed_rank_rejects(const std::vector<double>& differences, double centre, double level) {
  std::vector<double> moved;
  for (const double difference : differences) moved.push_back(difference - centre);
  std::sort(moved.begin(), moved.end(), [](double x, double y) { return std::abs(x) < std::abs(y); });
  const size_t n = moved.size(), patterns = size_t{1} << n;
  size_t observed = 0, as_high = 0, as_low = 0;
  for (size_t i = 0; i < n; ++i) observed += moved[i] > 0 ? i + 1 : 0;
  for (size_t pattern = 0; pattern < patterns; ++pattern) {
    size_t sum = 0;
    for (size_t i = 0; i < n; ++i) sum += pattern >> i & 1 ? i + 1 : 0;
    as_high += sum >= observed;
    as_low += sum <= observed;
  }
  return static_cast<double>(std::min(as_high, as_low)) <= (1 - level) / 2 * static_cast<double>(patterns) + 1e-9;
}

std::vector<double> ordered_pair_means(const std::vector<double>& differences) {
  std::vector<double> means;
  for (size_t i = 0; i < differences.size(); ++i)
    for (size_t j = i; j < differences.size(); ++j) means.push_back((differences[i] + differences[j]) / 2);
  std::sort(means.begin(), means.end());
  return means;
}

}  // namespace

TEST_CASE("the interval contains exactly the centres that Wilcoxon's test over all sign patterns does not reject") {
  for (const size_t count : {6u, 8u, 10u})
    for (const double level : {0.5, 0.95, 0.96})
      for (uint64_t seed = 0; seed < 5; ++seed) {
        const std::vector<double> differences = some_differences(count, seed);
        const auto interval = signed_rank_interval(differences, level);
        REQUIRE(interval);
        CAPTURE(count, level, seed, interval->low, interval->high);
        for (const double inside : {1e-6, 0.01, 0.3, 0.7, 0.99, 1 - 1e-6})
          CHECK_FALSE(
              signed_rank_rejects(differences, interval->low + inside * (interval->high - interval->low), level));
        for (const double outside : {1e-9, 0.01, 0.2}) {
          CHECK(signed_rank_rejects(differences, interval->low - outside * 0.1, level));
          CHECK(signed_rank_rejects(differences, interval->high + outside * 0.1, level));
        }
      }
}

TEST_CASE("critical values of the signed-rank test match published tables") {
  struct Row {
    size_t n;
    size_t five_percent, one_percent;  ///< two-sided: sums of ranks up to these are rejected
  };
  for (const auto& [n, five, one] : {Row{10, 8, 3}, Row{12, 13, 7}, Row{15, 25, 15}, Row{18, 40, 27}, Row{20, 52, 37},
                                     Row{25, 89, 68}, Row{30, 137, 109}}) {
    const std::vector<double> differences = some_differences(n, n), means = ordered_pair_means(differences);
    for (const auto& [level, critical] : {std::pair{0.95, five}, std::pair{0.99, one}}) {
      const auto interval = signed_rank_interval(differences, level);
      REQUIRE(interval);
      CAPTURE(n, level);
      CHECK(interval->low == means[critical]);
      CHECK(interval->high == means[means.size() - 1 - critical]);
    }
  }
  // Beyond 40 differences by the normal approximation: 434 is the exact critical value for 50 at 5 %.
  const std::vector<double> differences = some_differences(50, 50), means = ordered_pair_means(differences);
  const auto interval = signed_rank_interval(differences, 0.95);
  REQUIRE(interval);
  CHECK(interval->low >= means[432]);
  CHECK(interval->low <= means[435]);
}

TEST_CASE("an outlier hardly moves the signed-rank interval, and too few differences have none") {
  std::vector<double> differences = some_differences(30, 2);
  const auto before = signed_rank_interval(differences, 0.95);
  *std::max_element(differences.begin(), differences.end()) = 50;
  const auto after = signed_rank_interval(differences, 0.95);
  REQUIRE((before && after));
  CHECK(after->low == Approx(before->low).margin(0.002));
  CHECK(after->high == Approx(before->high).margin(0.01));

  CHECK_FALSE(signed_rank_interval({}, 0.95));
  CHECK_FALSE(signed_rank_interval(std::span(differences).first(5), 0.95));  // 2/32 > 0.05
  CHECK(signed_rank_interval(std::span(differences).first(6), 0.95));        // 2/64 < 0.05
  CHECK_FALSE(signed_rank_interval(differences, 1));
  const auto widest = signed_rank_interval(std::span(differences).first(8), 1 - 2.0 / 256);  // exactly
  REQUIRE(widest);
  CHECK(widest->low == *std::min_element(differences.begin(), differences.begin() + 8));
  CHECK(widest->high == *std::max_element(differences.begin(), differences.begin() + 8));
  CHECK(signed_rank_interval(std::vector<double>(20, 0.25), 0.95) == Interval{0.25, 0.25});
}
