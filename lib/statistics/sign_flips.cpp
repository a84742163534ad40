#include "statistics/sign_flips.h"

#include "base/error.h"
#include "base/philox.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trainopt {
namespace {

/// Patterns are numbered by words of so many bits.
constexpr double kFewestBits = 12, kMostBits = 16;
/// So many patterns beyond each end make a decision steady from one seed to another.
constexpr double kTail = 64;

/// values[w] becomes the sum over c of values[c]·(−1)^(number of bits that w and c share): the fast Walsh–Hadamard
/// transform.
void walsh_hadamard(std::vector<double>& values) {
  for (size_t half = 1; half < values.size(); half *= 2)
    for (size_t begin = 0; begin < values.size(); begin += 2 * half)
      for (size_t i = begin; i < begin + half; ++i) {
        const double even = values[i], odd = values[i + half];
        values[i] = even + odd;
        values[i + half] = even - odd;
      }
}

}  // namespace

double total_ratio(std::span<const PairedTimes> pairs) {
  PairedTimes sum;
  for (const PairedTimes& pair : pairs) sum = {sum.a + pair.a, sum.b + pair.b};
  return sum.a / sum.b;
}

SignFlipTest::SignFlipTest(double error, uint64_t seed) : key_(mix_key(seed, "sign patterns")) {
  TRAINOPT_CHECK(error > 0 && error < 1);
  bits_ = static_cast<size_t>(std::clamp(std::ceil(std::log2(2 * kTail / error)), kFewestBits, kMostBits));
  sums_a_.resize(size_t{1} << bits_);
  sums_b_.resize(sums_a_.size());
}

/// Pattern `word` flips pair i where the words `word` and column(i) share an odd number of bits. Exclusive or of words
/// is then the product of patterns; the first bits_ pairs have a bit of their own, so that few pairs have all patterns.
size_t SignFlipTest::column(size_t pair) const {
  if (pair < bits_) return size_t{1} << pair;
  return 1 + PhiloxStream(key_, pair).next_below((uint64_t{1} << bits_) - 1);
}

void SignFlipTest::look(std::span<const PairedTimes> pairs, double spent, PairedTimes allowance, PairedTimes charge) {
  TRAINOPT_CHECK(pairs.size() >= taken_ && spent >= 0 && spent < 1);
  for (; taken_ < pairs.size(); ++taken_) {
    const auto [a, b] = pairs[taken_];
    TRAINOPT_CHECK(std::isfinite(a) && std::isfinite(b) && a > 0 && b > 0);
    sums_a_[column(taken_)] += a;
    sums_b_[column(taken_)] += b;
  }
  // What is added makes up for the rounding of 1 − level alone.
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

bool SignFlipTest::rejects(double ratio, double sign, bool charge_last) const {
  std::vector<uint32_t> left(sums_a_.size());  // patterns not yet rejected
  std::iota(left.begin(), left.end(), 0u);
  std::vector<double> sums(left.size()), ordered;
  for (const Look& look : looks_) {
    const auto may_go = look.allowed - static_cast<int64_t>(sums_a_.size() - left.size());
    if (may_go <= 0) continue;
    for (const uint32_t word : left) sums[word] = sign * (look.a[word] - ratio * look.b[word]);
    const bool charged = charge_last || &look != &looks_.back();
    const double more_a = look.allowance.a + (charged ? look.charge.a : 0),
                 more_b = look.allowance.b + (charged ? look.charge.b : 0);
    const double observed =
        sign > 0 ? look.a[0] - ratio * (look.b[0] + more_b) : ratio * look.b[0] - (look.a[0] + more_a);
    ordered.clear();
    for (const uint32_t word : left) ordered.push_back(sums[word]);
    const auto first_kept = ordered.begin() + may_go;
    if (first_kept >= ordered.end()) return false;
    std::nth_element(ordered.begin(), first_kept, ordered.end(), std::greater<>());
    const double bound = *first_kept;
    // The observed pattern may be gone already, where an allowance held it up.
    if (observed > bound) return true;
    std::erase_if(left, [&](uint32_t word) { return sums[word] > bound; });
  }
  return false;
}

}  // namespace trainopt
