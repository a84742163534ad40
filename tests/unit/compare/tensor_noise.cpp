// Simulated tensors: which differences are rounding, and which are not.
#include "compare/numbers/tensor_noise.h"

#include "base/philox.h"
#include "support/catch.h"

#include <fmt/format.h>

#include <cmath>

using namespace trainopt;

namespace {

constexpr int64_t kTensors = 62, kTwins = 4;

/// Tensors of 64 to 2^18 numbers, whose noise turns them by 0.05 to 0.4.
struct Sizes {
  int64_t numbers;
  double chord;
};
Sizes sizes_of(int64_t tensor) {
  return {int64_t{64} << (2 * (tensor % 7)), 0.05 + 0.35 * static_cast<double>(tensor % 5) / 4};
}

/// A's tensors have length 1. Noise of the relative size `level` is orthogonal to them but for a random share, which
/// stretches them.
std::vector<TensorPair> noisy(PhiloxStream& draws, double level) {
  std::vector<TensorPair> pairs;
  for (int64_t tensor = 0; tensor < kTensors; ++tensor) {
    const auto [numbers, chord] = sizes_of(tensor);
    double normal = -6;  // twelve uniform numbers have variance 1
    for (int i = 0; i < 12; ++i) normal += static_cast<double>(draws.next_below(1 << 20)) / (1 << 20);
    const double along = level * normal * chord / std::sqrt(std::min(static_cast<double>(numbers), 400.0)),
                 across = level * chord;
    pairs.push_back({.name = fmt::format("tensor {}", tensor),
                     .numbers = numbers,
                     .aa = 1,
                     .bb = (1 + along) * (1 + along) + across * across,
                     .ab = 1 + along});
  }
  return pairs;
}

TwinPairs twins_of(PhiloxStream& draws) {
  TwinPairs twins;
  for (int64_t twin = 0; twin < kTwins; ++twin) twins.push_back(noisy(draws, 1));
  return twins;
}

void scale(TensorPair& pair, double by) {
  pair.bb *= by * by;
  pair.ab *= by;
}

}  // namespace

TEST_CASE("a B as noisy as the twins, less noisy or somewhat more agrees in 99 of 100 comparisons") {
  const double level = GENERATE(0.01, 0.3, 1.0, 1.4);
  constexpr int kComparisons = 2000;
  PhiloxStream draws(7);
  int alarms = 0;
  for (int i = 0; i < kComparisons; ++i) {
    const TwinPairs twins = twins_of(draws);
    alarms += !judge_tensors(noisy(draws, level), twins).within_tolerance();
  }
  CAPTURE(level);
  CHECK(alarms <= kComparisons / 100);
}

TEST_CASE("one of many tensors that is 10 % too long or too short is found") {
  const double level = GENERATE(0.01, 0.3);
  PhiloxStream draws(8);
  int found = 0, planted = 0;
  for (int i = 0; i < 10; ++i) {
    const TwinPairs twins = twins_of(draws);
    const auto correct = noisy(draws, level);
    for (size_t tensor = 0; tensor < correct.size(); ++tensor)
      for (const double by : {1.1, 0.9}) {
        auto faulty = correct;
        scale(faulty[tensor], by);
        const TensorAgreement result = judge_tensors(faulty, twins);
        ++planted;
        found += result.beyond == 1 && result.worst == faulty[tensor].name;
      }
  }
  CAPTURE(level);
  CHECK(found >= 0.85 * planted);
}

TEST_CASE("all tensors that are 10 % too long are found as a whole, also where noise stretches them all") {
  PhiloxStream draws(9);
  const TwinPairs twins = twins_of(draws);
  auto pairs = noisy(draws, 1);
  CHECK(judge_whole(pairs, twins).norm.within_tolerance());
  for (TensorPair& pair : pairs) scale(pair, 1.1);
  CHECK_FALSE(judge_whole(pairs, twins).norm.within_tolerance());
}

TEST_CASE("a tensor that the twins turn far is counted, not judged") {
  PhiloxStream draws(10);
  TwinPairs twins = twins_of(draws);
  for (auto& pairs : twins) pairs[3].ab = 0;
  auto pairs = noisy(draws, 1);
  scale(pairs[3], -2);
  const TensorAgreement result = judge_tensors(pairs, twins);
  CHECK(result.within_tolerance());
  CHECK(result.tensors == kTensors - 1);
  CHECK(result.unchecked == 1);
}

TEST_CASE("a tensor with a direction of its own is found among quiet ones") {
  PhiloxStream draws(11);
  const TwinPairs twins = twins_of(draws);
  auto pairs = noisy(draws, 0.1);
  pairs[5].ab = -pairs[5].ab;
  const TensorAgreement result = judge_tensors(pairs, twins);
  CHECK(result.beyond == 1);
  CHECK(result.worst == "tensor 5");
}
