#include "statistics/paired.h"

#include "base/error.h"
#include "base/philox.h"
#include "statistics/sign_flips.h"
#include "statistics/spread.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace trainopt {
namespace {

/// Limits on the number of bits in the words that number the subsets.
constexpr size_t kMinWordBits = 12, kMaxWordBits = 20;
/// With this many subset means beyond each end, the ends of the interval vary little from seed to seed.
constexpr double kMeansBeyond = 4;

size_t word_bits(size_t blocks, double error) {
  const double wanted = std::ceil(std::log2(2 * kMeansBeyond / error));
  return std::min(blocks, static_cast<size_t>(std::clamp<double>(wanted, kMinWordBits, kMaxWordBits)));
}

/// Means of the subsets 1 … 2^bits − 1.
std::vector<double> subset_means(std::span<const double> differences, size_t bits, uint64_t seed) {
  const uint64_t key = mix_key(seed, "subsets");
  std::vector<double> sums(size_t{1} << bits), counts(sums.size());
  for (size_t i = 0; i < differences.size(); ++i) {
    const size_t column = pattern_column(i, bits, key);
    sums[column] += differences[i];
    counts[column] += 1;
  }
  // A subset contains the elements with sign −1, so its sum is (all − transformed) / 2, and likewise its count.
  walsh_hadamard(sums);
  walsh_hadamard(counts);
  for (size_t word = 1; word < sums.size(); ++word) sums[word] = (sums[0] - sums[word]) / (counts[0] - counts[word]);
  sums.erase(sums.begin());
  return sums;
}

}  // namespace

std::optional<Interval> paired_interval(std::span<const double> differences, double level, uint64_t seed) {
  TRAINOPT_CHECK(level > 0 && level < 1);
  for (const double difference : differences) TRAINOPT_CHECK(std::isfinite(difference));
  const double error = 1 - level;
  const size_t bits = word_bits(differences.size(), error);
  // The true mean is equally likely to be in each of the 2^bits gaps between subset means, so `outside` gaps may be
  // excluded on each side. The 1e-9 compensates for the rounding error of 1 − level.
  const auto outside =
      static_cast<std::ptrdiff_t>(std::floor(error / 2 * std::ldexp(1.0, static_cast<int>(bits)) + 1e-9));
  if (outside < 1) return std::nullopt;
  std::vector<double> means = subset_means(differences, bits, seed);
  return between_order_statistics(means, outside);
}

}  // namespace trainopt
