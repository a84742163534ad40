#include "statistics/sign_flips.h"

#include "base/error.h"
#include "base/philox.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trainopt {
namespace {

/// Limits on the number of bits in the words that number the patterns.
constexpr double kMinBits = 12, kMaxBits = 16;
/// With this many patterns beyond each end, a decision varies little from seed to seed.
constexpr double kTail = 64;
/// The state of the first few ratios queried is kept, because they are queried again at every look.
constexpr size_t kWalks = 8;

}  // namespace

int64_t pairs_for(double level) {
  TRAINOPT_CHECK(level > 0 && level < 1);
  int64_t pairs = 1;
  while (2 * std::pow(0.5, static_cast<double>(pairs)) > (1 - level) * (1 + 1e-9)) ++pairs;
  return pairs;
}

double total_ratio(std::span<const PairedTimes> pairs) {
  PairedTimes sum;
  for (const PairedTimes& pair : pairs) sum = {sum.a + pair.a, sum.b + pair.b};
  return sum.a / sum.b;
}

SignFlipTest::SignFlipTest(double error, uint64_t seed) : key_(mix_key(seed, "sign patterns")) {
  TRAINOPT_CHECK(error > 0 && error < 1);
  bits_ = static_cast<size_t>(std::clamp(std::ceil(std::log2(2 * kTail / error)), kMinBits, kMaxBits));
  sums_a_.resize(size_t{1} << bits_);
  sums_b_.resize(sums_a_.size());
}

void SignFlipTest::look(std::span<const PairedTimes> pairs, double spent, PairedTimes allowance, PairedTimes charge) {
  TRAINOPT_CHECK(pairs.size() >= taken_ && spent >= 0 && spent < 1);
  for (; taken_ < pairs.size(); ++taken_) {
    const auto [a, b] = pairs[taken_];
    TRAINOPT_CHECK(std::isfinite(a) && std::isfinite(b) && a > 0 && b > 0);
    const size_t column = pattern_column(taken_, bits_, key_);
    sums_a_[column] += a;
    sums_b_[column] += b;
  }
  // The 1e-9 compensates for the rounding error of 1 − level.
  const double patterns = static_cast<double>(sums_a_.size());
  Look look{.a = sums_a_,
            .b = sums_b_,
            .allowance = allowance,
            .charge = charge,
            .allowed = static_cast<int64_t>(std::floor(spent / 2 * patterns + 1e-9))};
  walsh_hadamard(look.a);
  walsh_hadamard(look.b);
  looks_.push_back(std::move(look));
}

/// Rejects as many patterns as may be rejected by this look, those with the largest sums first.
void SignFlipTest::remove_largest(const Look& look, Walk& walk) const {
  const int64_t removable = look.allowed - removed(walk);
  if (removable <= 0) return;
  std::vector<double> sums;
  sums.reserve(walk.remaining.size());
  for (const uint32_t word : walk.remaining) sums.push_back(walk.sign * (look.a[word] - walk.ratio * look.b[word]));
  std::vector<double> ordered = sums;
  const auto threshold = ordered.begin() + removable;
  std::nth_element(ordered.begin(), threshold, ordered.end(), std::greater<>());
  size_t count = 0;
  for (size_t i = 0; i < sums.size(); ++i)
    if (sums[i] <= *threshold) walk.remaining[count++] = walk.remaining[i];
  walk.remaining.resize(count);
}

/// Whether the observed pattern is among those that may be rejected, with the allowances of its faster arm applied.
bool SignFlipTest::removes_observed(const Look& look, const Walk& walk, bool charged) const {
  const int64_t removable = look.allowed - removed(walk);
  if (removable <= 0) return false;
  // The charge is spread over all pairs in proportion: the arm must be faster by that much more. A ratio rejected with
  // it would also be rejected without it, now or at an earlier look. So patterns are removed without the charge, and
  // the error bound still holds.
  const double more_a = look.allowance.a + (charged ? look.charge.a : 0),
               more_b = look.allowance.b + (charged ? look.charge.b : 0);
  const double a = walk.sign * (walk.sign < 0 ? 1 + more_a / look.a[0] : 1),
               b = walk.sign * walk.ratio * (walk.sign > 0 ? 1 + more_b / look.b[0] : 1);
  // Sums that differ by rounding alone are equal.
  const double observed = a * look.a[0] - b * look.b[0] - 1e-12 * (std::abs(a) * look.a[0] + std::abs(b) * look.b[0]);
  const auto as_large = std::count_if(walk.remaining.begin(), walk.remaining.end(),
                                      [&](uint32_t word) { return a * look.a[word] - b * look.b[word] >= observed; });
  return as_large <= removable;
}

/// Continues through the looks made since the last call.
bool SignFlipTest::result(Walk& walk, bool charge_last) const {
  for (; walk.looks < looks_.size() && !walk.rejected; ++walk.looks) {
    if (walk.looks > 0) remove_largest(looks_[walk.looks - 1], walk);
    walk.rejected = removes_observed(looks_[walk.looks], walk, true);
  }
  if (walk.rejected || charge_last || looks_.empty()) return walk.rejected;
  return removes_observed(looks_.back(), walk, false);
}

bool SignFlipTest::rejects(double ratio, double sign, bool charge_last) const {
  for (Walk& walk : walks_)
    if (walk.ratio == ratio && walk.sign == sign) return result(walk, charge_last);
  Walk walk{.ratio = ratio, .sign = sign, .remaining = std::vector<uint32_t>(sums_a_.size())};
  std::iota(walk.remaining.begin(), walk.remaining.end(), 0u);
  const bool rejected = result(walk, charge_last);
  if (walks_.size() < kWalks) walks_.push_back(std::move(walk));
  return rejected;
}

size_t pattern_column(size_t element, size_t bits, uint64_t key) {
  if (element < bits) return size_t{1} << element;
  return 1 + PhiloxStream(key, element).next_below((uint64_t{1} << bits) - 1);
}

void walsh_hadamard(std::vector<double>& values) {
  for (size_t half = 1; half < values.size(); half *= 2)
    for (size_t begin = 0; begin < values.size(); begin += 2 * half)
      for (size_t i = begin; i < begin + half; ++i) {
        const double even = values[i], odd = values[i + half];
        values[i] = even + odd;
        values[i + half] = even - odd;
      }
}

}  // namespace trainopt
