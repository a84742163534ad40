#include "statistics/block_bootstrap.h"

#include "base/philox.h"
#include "simulate.h"
#include "support/catch.h"

#include <algorithm>
#include <cmath>

using namespace trainopt;
using namespace trainopt::test;

namespace {

/// AR(1) with standard deviation `sd` around 0.
std::vector<double> series(size_t count, double phi, double sd, uint64_t seed) {
  PhiloxStream random(mix_key(seed, "series"));
  std::vector<double> values;
  double state = sd * random.next_normal();
  for (size_t i = 0; i < count; ++i)
    values.push_back(state = phi * state + sd * std::sqrt(1 - phi * phi) * random.next_normal());
  return values;
}

/// Steps of 32 samples in 0.1 s, give or take 5 %.
std::vector<Piece> steps(size_t count, double phi, uint64_t seed, double faster = 1) {
  std::vector<Piece> pieces;
  for (const double value : series(count, phi, 0.05, seed)) pieces.push_back({32, 0.1 * (1 + value) / faster});
  return pieces;
}

/// What one would do without thinking of neighbours: resample single steps.
Interval independent_bootstrap(const std::vector<Piece>& pieces, uint64_t seed) {
  PhiloxStream random(seed);
  std::vector<double> draws(200);
  for (double& draw : draws) {
    Piece sum;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const Piece& piece = pieces[random.next_below(pieces.size())];
      sum = {sum.samples + piece.samples, sum.seconds + piece.seconds};
    }
    draw = sum.samples / sum.seconds;
  }
  std::sort(draws.begin(), draws.end());
  return {draws[4], draws[195]};
}

}  // namespace

TEST_CASE("block lengths come near the best for AR(1)") {
  for (const double phi : {0.0, 0.5, 0.8, 0.9}) {
    constexpr size_t kCount = 10000;
    std::vector<double> lengths;
    for (uint64_t seed = 0; seed < 15; ++seed) lengths.push_back(mean_block_length(series(kCount, phi, 1, seed)));
    std::sort(lengths.begin(), lengths.end());
    // G / g(0) of the paper is 2·phi / (1 − phi²) for AR(1).
    const double best = std::max(1.0, std::cbrt(std::pow(2 * phi / (1 - phi * phi), 2) * kCount));
    CAPTURE(phi, lengths);
    CHECK(lengths[7] == Approx(best).epsilon(phi == 0 ? 1.0 : 0.3));
  }
  CHECK(mean_block_length(std::vector<double>(50, 3.0)) == 1);
}

TEST_CASE("throughput's interval covers what an independent bootstrap does not", "[rates]") {
  constexpr int64_t kTrials = 500;
  struct Case {
    size_t steps;
    double phi, least;  ///< fewer than about 50 times the correlation time, (1 + phi) / (1 − phi), tell less of the
                        ///< noise than it takes
  };
  for (const Case& c : {Case{60, 0, 0.93}, Case{60, 0.6, 0.87}, Case{300, 0, 0.93}, Case{300, 0.6, 0.9},
                        Case{300, 0.9, 0.86}, Case{1000, 0.6, 0.92}, Case{1000, 0.9, 0.9}}) {
    int64_t held = 0, held_by_independent = 0;
    for (uint64_t seed = 0; seed < kTrials; ++seed) {
      const std::vector<Piece> pieces = steps(c.steps, c.phi, seed);
      held += throughput_interval(pieces, 0.95, seed).contains(320);
      held_by_independent += independent_bootstrap(pieces, seed).contains(320);
    }
    INFO(c.steps << " steps, phi " << c.phi << ": held " << 100.0 * held / kTrials << " %, by an independent bootstrap "
                 << 100.0 * held_by_independent / kTrials << " %");
    CHECK(held >= c.least * kTrials);
    if (c.phi > 0)
      CHECK(exceeds(kTrials - held_by_independent, kTrials, 0.15));
    else
      CHECK_FALSE(exceeds(kTrials - held_by_independent, kTrials, 0.1));
  }
}

TEST_CASE("the ratio of two runs has its interval", "[rates]") {
  constexpr int64_t kTrials = 500;
  int64_t held = 0, equal = 0;
  for (uint64_t seed = 0; seed < kTrials; ++seed) {
    const Interval ratio =
        throughput_ratio_interval(steps(300, 0.6, 2 * seed), steps(200, 0.6, 2 * seed + 1, 1.05), 0.95, seed);
    held += ratio.contains(1.05);
    equal += ratio.contains(1);
  }
  INFO("held " << 100.0 * held / kTrials << " %");
  CHECK_FALSE(exceeds(kTrials - held, kTrials, 0.1));
  CHECK(equal < kTrials / 10);
}

TEST_CASE("steps of different size weigh by their time; the seed decides the draws") {
  std::vector<Piece> pieces(20, {32, 0.1});
  pieces.resize(30, {64, 0.1});
  CHECK(throughput(pieces) == Approx(1280 / 3.0));
  const Interval interval = throughput_interval(pieces, 0.9, 1);
  CHECK(interval.contains(throughput(pieces)));
  CHECK(interval == throughput_interval(pieces, 0.9, 1));
  CHECK_FALSE(interval == throughput_interval(pieces, 0.9, 2));
  CHECK(throughput_interval(std::vector<Piece>(8, {32, 0.1}), 0.95, 1).low == Approx(320));

  std::vector<Piece> stuck(20, {32, 0.001});
  for (size_t i = 0; i < 5; ++i) stuck[i].seconds = 10;
  CHECK(throughput_interval(stuck, 0.99, 1).low > 0);  // widened, but never below 0
}
