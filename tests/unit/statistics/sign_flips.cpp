#include "statistics/sign_flips.h"

#include "base/error.h"
#include "simulate.h"
#include "support/catch.h"

#include <algorithm>
#include <cmath>
#include <map>

using namespace trainopt;
using namespace trainopt::test;

namespace {

struct LookAt {
  size_t pairs = 0;
  double spent = 0;
  PairedTimes allowance = {};
};

std::vector<PairedTimes> some_pairs(size_t count, uint64_t seed, double ratio = 1.1) {
  PhiloxStream random(mix_key(seed, "pairs"));
  std::vector<PairedTimes> pairs(count);
  for (PairedTimes& pair : pairs) {
    const double common = random.next_uniform(0.5, 2);
    pair = {common * std::exp(0.1 * random.next_normal()), common * std::exp(0.1 * random.next_normal()) / ratio};
  }
  return pairs;
}

SignFlipTest looked_at(const std::vector<PairedTimes>& pairs, const std::vector<LookAt>& looks, uint64_t seed = 1) {
  SignFlipTest test(0.05, seed);
  for (const LookAt& at : looks) test.look(std::span(pairs).first(at.pairs), at.spent, at.allowance);
  return test;
}

/// Reference implementation, over all 2^n sign patterns: each look rejects as many patterns as it may, those with the
/// largest sums first. The observed pattern must be among them with the faster arm's times lengthened by the allowance.
/// `too_low`: tests whether `ratio` is too low; otherwise whether it is too high.
bool rejects(const std::vector<PairedTimes>& pairs, const std::vector<LookAt>& looks, double ratio, bool too_low) {
  const size_t patterns = size_t{1} << looks.back().pairs;
  const auto share = static_cast<double>(patterns);
  std::vector<bool> gone(patterns);
  double already = 0;
  for (const LookAt& look : looks) {
    const size_t count = look.pairs;
    const double may_go = look.spent / 2 * share + 1e-6;
    // A large a − ρ·b is evidence that ρ is too low.
    PairedTimes total, longer{1, 1};
    for (size_t i = 0; i < count; ++i) total = {total.a + pairs[i].a, total.b + pairs[i].b};
    (too_low ? longer.b : longer.a) += too_low ? look.allowance.b / total.b : look.allowance.a / total.a;
    const auto sum_of = [&](size_t pattern, PairedTimes factor) {
      double sum = 0;
      for (size_t i = 0; i < count; ++i)
        sum += (pattern >> i & 1 ? -1 : 1) * (pairs[i].a * factor.a - ratio * pairs[i].b * factor.b);
      return too_low ? sum : -sum;
    };
    std::map<double, std::vector<size_t>, std::greater<>> by_sum;
    size_t as_large = 0;
    for (size_t pattern = 0; pattern < patterns; ++pattern) {
      if (gone[pattern]) continue;
      by_sum[sum_of(pattern, {1, 1})].push_back(pattern);
      as_large += sum_of(pattern, longer) >= sum_of(0, longer);
    }
    if (already + static_cast<double>(as_large) <= may_go && already + 1 <= may_go) return true;
    for (const auto& [sum, same] : by_sum) {
      if (already + static_cast<double>(same.size()) > may_go) break;
      already += static_cast<double>(same.size());
      for (const size_t pattern : same) gone[pattern] = true;
    }
  }
  return false;
}

}  // namespace

TEST_CASE("the rejected ratios are those of a test over all sign patterns") {
  const std::vector<std::vector<LookAt>> plans{
      {{6, 0.05}},
      {{8, 0.05}},
      {{10, 0.05}},
      {{10, 0.3}},
      {{7, 0.05}, {10, 0.2}},
      {{6, 0}, {9, 0.04}},
      {{5, 0.1}, {7, 0.14}, {10, 0.3}},
      {{10, 0.05, {0.3, 0.1}}},
      {{6, 0.1, {0.1, 0.5}}, {9, 0.2, {0.2, 0.4}}},
      {{5, 0.1, {2, 2}}, {7, 0.2, {0, 0.3}}, {9, 0.3, {0.3, 0}}},
  };
  int rejected = 0, not_rejected = 0;
  for (const std::vector<LookAt>& looks : plans)
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const std::vector<PairedTimes> pairs = some_pairs(looks.back().pairs, seed);
      const SignFlipTest test = looked_at(pairs, looks, seed);
      for (double ratio = 0.9; ratio < 1.35; ratio *= 1.013) {
        CAPTURE(looks.size(), looks.back().pairs, seed, ratio);
        const bool too_low = rejects(pairs, looks, ratio, true), too_high = rejects(pairs, looks, ratio, false);
        CHECK(test.rejects_as_too_low(ratio) == too_low);
        CHECK(test.rejects_as_too_high(ratio) == too_high);
        rejected += too_low + too_high;
        not_rejected += !too_low + !too_high;
      }
    }
  CHECK(rejected > 300);
  CHECK(not_rejected > 300);
}

TEST_CASE("over all outcomes of the coin tosses, equal arms are rejected with the probability spent") {
  constexpr size_t kPairs = 10;
  const std::vector<LookAt> looks{{5, 0.07}, {8, 0.1}, {kPairs, 0.2}};
  for (const Noise& noise : noises()) {
    const std::vector<Measurement> measurements = simulate(noise, 1, kPairs, 1);
    std::vector<PairedTimes> pairs(kPairs);
    int too_low = 0, too_high = 0;
    for (size_t coins = 0; coins < size_t{1} << kPairs; ++coins) {
      for (size_t i = 0; i < kPairs; ++i) {
        const auto [a, b] = measurements[i].seconds_per_sample;
        pairs[i] = coins >> i & 1 ? PairedTimes{b, a} : PairedTimes{a, b};
      }
      const SignFlipTest test = looked_at(pairs, looks);
      too_low += test.rejects_as_too_low(1);
      too_high += test.rejects_as_too_high(1);
    }
    // Half of 20 % of 1024 on each side, and never more.
    INFO(noise.name);
    CHECK(too_low <= 102);
    CHECK(too_high <= 102);
    CHECK(too_low > 95);
    CHECK(too_high > 95);
  }
}

TEST_CASE("units cancel, and swapping the arms inverts the ratios") {
  const std::vector<LookAt> looks{{12, 0.02, {0.5, 0.25}}, {20, 0.05, {0.25, 0}}, {40, 0.08, {0, 0.125}}};
  const std::vector<PairedTimes> pairs = some_pairs(40, 3, 1.05);
  std::vector<PairedTimes> scaled, exchanged;
  for (const auto& [a, b] : pairs) {
    scaled.push_back({8 * a, 2 * b});
    exchanged.push_back({b, a});
  }
  std::vector<LookAt> scaled_looks = looks, exchanged_looks = looks;
  for (LookAt& look : scaled_looks) look.allowance = {8 * look.allowance.a, 2 * look.allowance.b};
  for (LookAt& look : exchanged_looks) look.allowance = {look.allowance.b, look.allowance.a};
  const SignFlipTest test = looked_at(pairs, looks), four = looked_at(scaled, scaled_looks),
                     mirrored = looked_at(exchanged, exchanged_looks);
  int rejected = 0;
  for (double ratio = 0.9; ratio < 1.2; ratio *= 1.003) {
    CAPTURE(ratio);
    CHECK(test.rejects_as_too_low(ratio) == four.rejects_as_too_low(4 * ratio));
    CHECK(test.rejects_as_too_high(ratio) == four.rejects_as_too_high(4 * ratio));
    CHECK(test.rejects_as_too_low(ratio) == mirrored.rejects_as_too_high(1 / ratio));
    CHECK(test.rejects_as_too_high(ratio) == mirrored.rejects_as_too_low(1 / ratio));
    rejected += test.rejects_as_too_low(ratio) + test.rejects_as_too_high(ratio);
  }
  CHECK(rejected > 40);
  CHECK(rejected < 95);
}

TEST_CASE("beyond twelve pairs the seed chooses a group of patterns, and results vary little between seeds") {
  const std::vector<PairedTimes> pairs = some_pairs(80, 5, 1.05);
  std::vector<double> ends;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const SignFlipTest test = looked_at(pairs, {{80, 0.05}}, seed);
    double ratio = total_ratio(pairs);
    CHECK_FALSE(test.rejects_as_too_low(ratio));
    CHECK_FALSE(test.rejects_as_too_high(ratio));
    while (!test.rejects_as_too_low(ratio)) ratio *= 0.9999;
    ends.push_back(ratio);
    CHECK(test.rejects_as_too_low(ratio) == looked_at(pairs, {{80, 0.05}}, seed).rejects_as_too_low(ratio));
  }
  const auto [lowest, highest] = std::minmax_element(ends.begin(), ends.end());
  CHECK(*lowest != *highest);
  CHECK(*highest - *lowest < 0.15 * (total_ratio(pairs) - *lowest));
}

TEST_CASE("invalid input is rejected") {
  CHECK_THROWS_AS(SignFlipTest(0, 1), BrokenInvariant);
  CHECK_THROWS_AS(SignFlipTest(1, 1), BrokenInvariant);
  SignFlipTest test(0.05, 1);
  const std::vector<PairedTimes> pairs{{1, 1}, {1, 0}};
  test.look(std::span(pairs).first(1), 0.01);
  CHECK_THROWS_AS(test.look({}, 0.02), BrokenInvariant);     // fewer pairs than before
  CHECK_THROWS_AS(test.look(pairs, 0.02), BrokenInvariant);  // a time of zero
  CHECK(test.looks() == 1);
}
