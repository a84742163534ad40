#include "statistics/block_bootstrap.h"

#include "simulate.h"
#include "support/catch.h"

#include <algorithm>
#include <cmath>

using namespace trainopt;
using namespace trainopt::test;

TEST_CASE("block lengths are near the optimum for AR(1)") {
  for (const double phi : {0.0, 0.5, 0.8, 0.9}) {
    constexpr size_t kCount = 10000;
    std::vector<double> lengths;
    for (uint64_t seed = 0; seed < 15; ++seed)
      lengths.push_back(mean_block_length(autoregressive(kCount, phi, 1, seed)));
    std::sort(lengths.begin(), lengths.end());
    // G / g(0) of the paper is 2·phi / (1 − phi²) for AR(1).
    const double best = std::max(1.0, std::cbrt(std::pow(2 * phi / (1 - phi * phi), 2) * kCount));
    CAPTURE(phi, lengths);
    CHECK(lengths[7] == Approx(best).epsilon(phi == 0 ? 1.0 : 0.3));
  }
  CHECK(mean_block_length(std::vector<double>(50, 3.0)) == 1);
}

TEST_CASE("the correlation time is that of AR(1)") {
  for (const double phi : {0.0, 0.5, 0.8, 0.9}) {
    std::vector<double> found;
    for (uint64_t seed = 0; seed < 15; ++seed) found.push_back(correlation_time(autoregressive(10000, phi, 1, seed)));
    std::sort(found.begin(), found.end());
    CAPTURE(phi, found);
    CHECK(found[7] == Approx((1 + phi) / (1 - phi)).epsilon(0.15));
  }
  CHECK(correlation_time(std::vector<double>(50, 3.0)) == 1);
}

TEST_CASE("a run too short to estimate its own noise has no interval") {
  CHECK_FALSE(throughput_interval(steps(59, 0, 1), 0.95, 1));
  CHECK(throughput_interval(steps(60, 0, 1), 0.95, 1));
  CHECK_FALSE(throughput_interval({}, 0.95, 1));
  CHECK_FALSE(throughput_interval(steps(1, 0, 1), 0.95, 1));
  // 15 correlation times are 585 steps.
  int short_runs = 0, long_runs = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    short_runs += throughput_interval(steps(100, 0.95, seed), 0.95, seed).has_value();
    long_runs += throughput_interval(steps(2000, 0.95, seed), 0.95, seed).has_value();
  }
  CHECK(short_runs <= 5);
  CHECK(long_runs >= 45);

  CHECK_FALSE(throughput_ratio_interval(steps(59, 0, 1), steps(200, 0, 2), 0.95, 1));
  CHECK_FALSE(throughput_ratio_interval(steps(200, 0, 1), steps(59, 0, 2), 0.95, 1));
  CHECK(throughput_ratio_interval(steps(200, 0, 1), steps(200, 0, 2), 0.95, 1));
}

TEST_CASE("steps of different size are weighted by their time, and the seed determines the draws") {
  std::vector<Piece> pieces(20, {32, 0.1});
  pieces.resize(30, {64, 0.1});
  CHECK(throughput(pieces) == Approx(1280 / 3.0));

  pieces = steps(100, 0.2, 1);
  const auto interval = throughput_interval(pieces, 0.9, 1);
  REQUIRE(interval);
  CHECK(interval->contains(throughput(pieces)));
  CHECK(interval == throughput_interval(pieces, 0.9, 1));
  CHECK_FALSE(interval == throughput_interval(pieces, 0.9, 2));
  const auto even = throughput_interval(std::vector<Piece>(60, {32, 0.1}), 0.95, 1);
  REQUIRE(even);
  CHECK(even->low == Approx(320));

  std::vector<Piece> stuck(100, {32, 0.001});
  for (size_t i = 0; i < 100; i += 30) stuck[i].seconds = 10;
  const auto wide = throughput_interval(stuck, 0.99, 1);
  REQUIRE(wide);
  CHECK(wide->low > 0);  // widened, but never below 0
}
