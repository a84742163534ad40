// Coverage of the interval of one run's throughput. Sizes and tables as in rates.cpp.
#include "simulate.h"
#include "statistics/block_bootstrap.h"
#include "support/catch.h"

#include <algorithm>

#include <fmt/format.h>

using namespace trainopt;
using namespace trainopt::test;

namespace {

/// The naive method, which ignores autocorrelation: resamples single steps.
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

double percent(int64_t count, int64_t of) {
  return of == 0 ? 0 : 100 * static_cast<double>(count) / static_cast<double>(of);
}

}  // namespace

TEST_CASE("the interval of one run, if there is one, contains its throughput", "[rates]") {
  if (full_rates())
    fmt::print(
        "\n| steps | correlation | no interval | misses, of all runs | of those with one | independent bootstrap "
        "misses "
        "|\n|--:|---|--:|--:|--:|--:|\n");
  for (const size_t count : {20u, 60u, 300u, 1000u})
    for (const double phi : {0.0, 0.6, 0.75, 0.9}) {
      const int64_t runs = trials(count > 500 ? 60 : 150, count > 500 ? 2000 : 4000);
      int64_t none = 0, missed = 0, independent_missed = 0;
      for (int64_t trial = 0; trial < runs; ++trial) {
        const auto seed = static_cast<uint64_t>(trial);
        const std::vector<Piece> pieces = steps(count, phi, seed);
        const auto interval = throughput_interval(pieces, 0.95, seed);
        none += !interval;
        missed += interval && !interval->contains(320);
        independent_missed += !independent_bootstrap(pieces, seed).contains(320);
      }
      const std::string row =
          fmt::format("| {} | AR(1), phi {:g} | {:.0f} % | {:.1f} % | {} | {:.0f} % |", count, phi, percent(none, runs),
                      percent(missed, runs), none == runs ? "" : fmt::format("{:.1f} %", percent(missed, runs - none)),
                      percent(independent_missed, runs));
      if (full_rates()) fmt::print("{}\n", row);
      INFO(row);
      if (count < EnoughPieces{}.pieces) CHECK(none == runs);
      // The method is approximate. Where only a few runs have an interval, they are those that looked quieter than they
      // were; so the rate that counts is of intervals reported that miss, over all runs.
      CHECK_FALSE(exceeds(missed, runs, 0.07));
      if ((phi == 0 && count >= EnoughPieces{}.pieces) || (count >= 300 && phi < 0.8)) CHECK(none < runs / 20);
      if (count == 60 && phi > 0.7) CHECK(none > runs * 9 / 10);
      if (phi > 0.5) CHECK(exceeds(independent_missed, runs, 0.1));
    }
}

TEST_CASE("the interval of the ratio of two runs has its coverage", "[rates]") {
  const int64_t runs = trials(150, 2000);
  int64_t missed = 0, equal = 0, none = 0;
  for (int64_t trial = 0; trial < runs; ++trial) {
    const auto seed = static_cast<uint64_t>(trial);
    const auto ratio =
        throughput_ratio_interval(steps(300, 0.6, 2 * seed), steps(200, 0.6, 2 * seed + 1, 1.05), 0.95, seed);
    none += !ratio;
    missed += ratio && !ratio->contains(1.05);
    equal += ratio && ratio->contains(1);
  }
  INFO("missed " << missed << " of " << runs - none);
  CHECK_FALSE(exceeds(missed, runs - none, 0.1));
  CHECK(equal < runs / 10);
  CHECK(none < runs / 4);
}
