#include "statistics/signed_rank.h"

#include "base/error.h"
#include "statistics/spread.h"
#include "statistics/welch.h"

#include <cmath>
#include <vector>

namespace trainopt {
namespace {

/// Above this count the normal approximation is close enough.
constexpr size_t kMaxExactCount = 40;
constexpr size_t kMaxDifferences = 2000;

/// The largest w with P(W < w) ≤ tail, where W is the sum of those ranks 1 … n that fair coin tosses select: how many
/// of the pairwise means may be excluded on each side.
int64_t ranks_outside(size_t n, double tail) {
  const size_t max_sum = n * (n + 1) / 2;
  if (n > kMaxExactCount) {
    const auto count = static_cast<double>(n);
    const double sd = std::sqrt(count * (count + 1) * (2 * count + 1) / 24);
    return static_cast<int64_t>(std::floor(static_cast<double>(max_sum) / 2 - normal_quantile(tail) * sd));
  }
  std::vector<double> probability(max_sum + 1);
  probability[0] = 1;
  for (size_t rank = 1; rank <= n; ++rank)
    for (size_t sum = max_sum + 1; sum-- > 0;)
      probability[sum] = (probability[sum] + (sum >= rank ? probability[sum - rank] : 0)) / 2;
  double below = 0;
  for (size_t sum = 0; sum <= max_sum; ++sum) {
    below += probability[sum];
    if (below > tail * (1 + 1e-9)) return static_cast<int64_t>(sum);
  }
  return static_cast<int64_t>(max_sum);
}

}  // namespace

std::optional<Interval> signed_rank_interval(std::span<const double> differences, double level) {
  TRAINOPT_CHECK(level > 0 && level <= 1);
  if (level == 1 || differences.empty()) return std::nullopt;
  // Averages groups of neighbours to limit the number of pairwise means. A group's mean has the same sign symmetry.
  if (differences.size() > kMaxDifferences) {
    const size_t group = (differences.size() + kMaxDifferences - 1) / kMaxDifferences;
    std::vector<double> grouped;
    for (size_t begin = 0; begin + group <= differences.size(); begin += group) {
      double sum = 0;
      for (const double difference : differences.subspan(begin, group)) sum += difference;
      grouped.push_back(sum / static_cast<double>(group));
    }
    return signed_rank_interval(grouped, level);
  }
  const int64_t outside = ranks_outside(differences.size(), (1 - level) / 2);
  if (outside < 1) return std::nullopt;
  std::vector<double> means;
  means.reserve(differences.size() * (differences.size() + 1) / 2);
  for (size_t i = 0; i < differences.size(); ++i)
    for (size_t j = i; j < differences.size(); ++j) means.push_back((differences[i] + differences[j]) / 2);
  if (2 * outside > static_cast<int64_t>(means.size())) return std::nullopt;
  return between_order_statistics(means, outside);
}

}  // namespace trainopt
