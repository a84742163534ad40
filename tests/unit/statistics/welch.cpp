#include "statistics/welch.h"

#include "base/error.h"
#include "base/philox.h"
#include "statistics/spread.h"
#include "support/catch.h"

#include <cmath>
#include <vector>

using namespace trainopt;

namespace {

std::vector<double> normal_values(PhiloxStream& random, int count, double sd) {
  std::vector<double> values(static_cast<size_t>(count));
  for (double& value : values) value = sd * random.next_normal();
  return values;
}

/// Student's interval with one variance for both samples, which Welch's is compared with.
bool pooled_contains_zero(const std::vector<double>& a, const std::vector<double>& b) {
  const auto n = static_cast<double>(a.size()), m = static_cast<double>(b.size());
  const double in_a = std::pow(standard_deviation(a), 2) * (n - 1), in_b = std::pow(standard_deviation(b), 2) * (m - 1);
  const double error = std::sqrt((in_a + in_b) / (n + m - 2) * (1 / n + 1 / m));
  return std::abs(mean_of(b) - mean_of(a)) <= student_quantile(0.025, n + m - 2) * error;
}

}  // namespace

TEST_CASE("Welch's interval is that of scipy.stats.ttest_ind without equal variances") {
  struct Row {
    std::vector<double> a, b;
    double level, low, high;
  };
  for (const auto& [a, b, level, low, high] :
       {Row{{1, 2, 3, 4}, {2, 4, 9}, 0.95, -5.557543515568682, 10.557543515568682},
        Row{{0.1, 0.12, 0.09, 0.11, 0.13, 0.1}, {0.2, 0.1, 0.15}, 0.95, -0.07588458074435431, 0.15921791407768768},
        Row{{5, 5.5}, {4, 4.4}, 0.99, -4.497866712920386, 2.397866712920387},
        Row{{1, 1, 1}, {2, 3, 2.5, 2.75, 2.1}, 0.9, 1.0660726935928586, 1.8739273064071407},
        Row{{7.301, 7.322, 7.298, 7.31, 7.305, 7.317},
            {7.25, 7.241, 7.262, 7.248, 7.255, 7.239},
            0.95,
            -0.07122328906844073,
            -0.04811004426489278}}) {
    const auto interval = welch_interval(a, b, level);
    REQUIRE(interval.has_value());
    CHECK(interval->low == Approx(low).epsilon(1e-8));
    CHECK(interval->high == Approx(high).epsilon(1e-8));
  }
}

TEST_CASE("Welch's interval needs two values on each side, and values that vary") {
  const std::vector<double> one{1}, two{1, 2}, same{3, 3};
  CHECK_FALSE(welch_interval(one, two, 0.95).has_value());
  CHECK_FALSE(welch_interval(two, one, 0.95).has_value());
  CHECK_FALSE(welch_interval(same, same, 0.95).has_value());
  CHECK(welch_interval(same, two, 0.95).has_value());
  CHECK_THROWS_AS(welch_interval(two, two, 1), BrokenInvariant);
}

TEST_CASE("Welch's interval holds the true difference about as often as its level says, whatever the variances") {
  struct Row {
    int of_a, of_b;
    double sd_a, sd_b;
  };
  constexpr int kTrials = 8000;
  for (const auto& [of_a, of_b, sd_a, sd_b] : {Row{6, 6, 0.01, 0.01}, Row{6, 6, 0.01, 0.03}, Row{3, 3, 0.01, 0.01},
                                               Row{12, 3, 0.01, 0.03}, Row{20, 6, 0.002, 0.02}}) {
    CAPTURE(of_a, of_b, sd_a, sd_b);
    PhiloxStream random(static_cast<uint64_t>(of_a * 100 + of_b));
    int held = 0, held_pooled = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      const auto a = normal_values(random, of_a, sd_a), b = normal_values(random, of_b, sd_b);
      held += welch_interval(a, b, 0.95)->contains(0);
      held_pooled += pooled_contains_zero(a, b);
    }
    CHECK(held > 0.925 * kTrials);  // three values on one side and another variance: 93.0 %
    CHECK(held < 0.98 * kTrials);
    if (of_a > of_b) CHECK(held_pooled < 0.85 * kTrials);  // one variance for both would not do
  }
}

TEST_CASE("a mean's half-width is Student's, and the values needed rule out an effect nine times of ten") {
  CHECK(mean_half_width(2, 4, 0.95) == Approx(3.182446305).epsilon(1e-8));  // t(3) = 3.182, sd of the mean 1
  for (const double sd : {0.005, 0.02}) {
    const int64_t count = welch_values_needed(sd, sd, 0.95, 0.02);
    PhiloxStream random(7);
    int below = 0;
    for (int trial = 0; trial < 2000; ++trial)
      below += welch_interval(normal_values(random, static_cast<int>(count), sd),
                              normal_values(random, static_cast<int>(count), sd), 0.95)
                   ->high <= 0.02;
    CHECK(below > 1720);
    CHECK(welch_values_needed(sd, sd, 0.95, 0.005) > count);
  }
}
