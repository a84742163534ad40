#include "statistics/time_to_target.h"

#include "simulate.h"
#include "statistics/verdict.h"
#include "support/catch.h"

#include <cmath>
#include <limits>
#include <vector>

using namespace trainopt;
using namespace trainopt::test;

namespace {

/// Three standard deviations of a share of 5 % among 10,000 above it.
constexpr double kMostWrong = 0.05 + 3 * 0.0022;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

RunToTarget in(double seconds) { return {seconds, true}; }
RunToTarget not_in(double seconds) { return {seconds, false}; }

/// A run whose log time has this standard deviation and is scaled by `factor`; with `tails`, one in ten is drawn with
/// four times that deviation. It is given up after `patience`, and one in five never arrives if `some_never`.
struct Simulated {
  double sd = 0.15, factor = 1;
  bool tails = false, some_never = false;
  double patience = kInfinite;

  RunToTarget draw(PhiloxStream& random) const {
    const double spread = tails && random.next_uniform(0, 1) < 0.1 ? 4 * sd : sd;
    const double seconds = 100 * factor * std::exp(spread * random.next_normal());
    const bool never = some_never && random.next_uniform(0, 1) < 0.2;
    return never || seconds > patience ? not_in(std::min(patience, 1000 * factor)) : in(seconds);
  }
};

/// The share of comparisons that end in each verdict but inconclusive and no effect.
struct Shares {
  double pays = 0, costs = 0;
};
Shares verdicts(const Simulated& a, const Simulated& b, int comparisons, int seeds, uint64_t key) {
  PhiloxStream random(mix_key(key, "until"));
  Shares shares;
  for (int i = 0; i < comparisons; ++i) {
    std::vector<PairToTarget> pairs;
    for (int seed = 0; seed < seeds; ++seed) pairs.push_back({a.draw(random), b.draw(random)});
    const auto ratio = target_ratio(pairs, 0.95);
    const Verdict verdict = judge(ratio.interval.value(), 0.01);
    shares.pays += verdict == Verdict::pays, shares.costs += verdict == Verdict::costs;
  }
  shares.pays /= comparisons, shares.costs /= comparisons;
  return shares;
}

}  // namespace

TEST_CASE("the ratio of times to target is that of pairs with the same seed") {
  std::vector<PairToTarget> pairs;
  for (const double seconds : {10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0})
    pairs.push_back({in(2 * seconds), in(seconds)});
  const auto ratio = target_ratio(pairs, 0.95);
  CHECK(*ratio.ratio == Approx(2));
  CHECK(ratio.interval->low == Approx(2));
  CHECK(ratio.interval->high == Approx(2));
}

TEST_CASE("a run that never arrives leaves its end of the interval open") {
  std::vector<PairToTarget> pairs(8, {not_in(90), in(30)});
  CHECK(*target_ratio(pairs, 0.95).ratio == kInfinite);
  CHECK(target_ratio(pairs, 0.95).interval == Interval{kInfinite, kInfinite});
  pairs.assign(8, {in(30), not_in(kInfinite)});  // B diverges
  CHECK(target_ratio(pairs, 0.95).interval == Interval{0, 0});
  CHECK(judge(*target_ratio(pairs, 0.95).interval, 0.01) == Verdict::costs);

  pairs.clear();
  for (int i = 0; i < 8; ++i) pairs.push_back({i < 2 ? not_in(90) : in(40 + i), in(30)});
  const auto some = target_ratio(pairs, 0.95);
  CHECK(some.interval->low > 1);
  CHECK(some.interval->high == kInfinite);
  CHECK(std::isfinite(*some.ratio));
}

TEST_CASE("who is first is unknown if the other run ended sooner, or if neither arrived") {
  std::vector<PairToTarget> pairs(8, {not_in(20), in(30)});
  CHECK(target_ratio(pairs, 0.95).undecided == 8);
  CHECK(target_ratio(pairs, 0.95).interval == Interval{0, kInfinite});
  CHECK_FALSE(target_ratio(pairs, 0.95).ratio);
  pairs.assign(8, {not_in(20), not_in(30)});
  CHECK(target_ratio(pairs, 0.95).undecided == 8);
}

TEST_CASE("too few pairs give no interval") {
  CHECK(pairs_for(0.95) == 6);
  CHECK(pairs_for(0.9) == 5);
  CHECK(pairs_for(0.5) == 2);
  const std::vector<PairToTarget> pairs(5, {in(2), in(1)});
  CHECK_FALSE(target_ratio(pairs, 0.95).interval);
  CHECK(*target_ratio(pairs, 0.95).ratio == Approx(2));
}

TEST_CASE("without a difference, at most one comparison in twenty finds one") {
  const auto same = GENERATE(Simulated{}, Simulated{.sd = 0.3}, Simulated{.tails = true}, Simulated{.some_never = true},
                             Simulated{.sd = 0.3, .tails = true, .some_never = true}, Simulated{.patience = 105});
  for (const int seeds : {6, 10}) {
    const Shares wrong = verdicts(same, same, 10'000, seeds, 1);
    CHECK(wrong.pays + wrong.costs <= kMostWrong);
  }
}

TEST_CASE("without a difference, a recipe that is given less time to arrive is not blamed for it") {
  const Simulated patient{}, impatient{.patience = 90};
  const Shares wrong = verdicts(impatient, patient, 10'000, 10, 2);
  CHECK(wrong.pays + wrong.costs <= kMostWrong);
}

TEST_CASE("how often a recipe that needs 1.3 times as long is found with ten seeds") {
  const auto found = [](Simulated kind) {
    Simulated slow = kind;
    slow.factor = 1.3;
    return verdicts(slow, kind, 2000, 10, 3);
  };
  CHECK(found({.sd = 0.15}).pays >= 0.9);
  const double noisy = found({.sd = 0.3}).pays, unreliable = found({.some_never = true}).pays;
  WARN("found with a standard deviation of 0.3: " << noisy << ", with 20 % never arriving: " << unreliable);
  CHECK(noisy > 0.3);
  CHECK(found({.sd = 0.3}).costs < 0.01);
}
