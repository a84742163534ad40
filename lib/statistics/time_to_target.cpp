#include "statistics/time_to_target.h"

#include "base/error.h"
#include "statistics/signed_rank.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace trainopt {
namespace {

/// Stands for the log ratio of a pair in which one run never arrived: beyond any real one, and so is the mean of it and
/// a real one.
constexpr double kNever = 1e6;

enum class Sooner { a, b, unknown };
Sooner sooner(const PairToTarget& pair) {
  if (pair.a.reached && !pair.b.reached) return pair.a.seconds <= pair.b.seconds ? Sooner::a : Sooner::unknown;
  if (pair.b.reached && !pair.a.reached) return pair.b.seconds <= pair.a.seconds ? Sooner::b : Sooner::unknown;
  return Sooner::unknown;
}

double ratio_of(double log) {
  if (log > kNever / 4) return std::numeric_limits<double>::infinity();
  return log < -kNever / 4 ? 0 : std::exp(log);
}

double median_of_pair_means(const std::vector<double>& values) {
  std::vector<double> means;
  for (size_t i = 0; i < values.size(); ++i)
    for (size_t j = i; j < values.size(); ++j) means.push_back((values[i] + values[j]) / 2);
  const auto middle = means.begin() + static_cast<std::ptrdiff_t>(means.size() / 2);
  std::nth_element(means.begin(), middle, means.end());
  if (means.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(means.begin(), middle)) / 2;
}

}  // namespace

TargetRatio target_ratio(std::span<const PairToTarget> pairs, double level) {
  TargetRatio result;
  std::vector<double> decided, lowest, highest;  // the last two: if all undecided pairs spoke for A, or for B
  const auto add = [&](double low, double high) {
    lowest.push_back(low);
    highest.push_back(high);
    if (low == high) decided.push_back(low);
  };
  for (const PairToTarget& pair : pairs) {
    TRAINOPT_CHECK(pair.a.seconds > 0 && pair.b.seconds > 0);
    if (pair.a.reached && pair.b.reached) {
      const double log = std::log(pair.a.seconds / pair.b.seconds);
      add(log, log);
      continue;
    }
    const Sooner first = sooner(pair);
    result.undecided += first == Sooner::unknown;
    add(first == Sooner::b ? kNever : -kNever, first == Sooner::a ? -kNever : kNever);
  }
  if (!decided.empty()) result.ratio = ratio_of(median_of_pair_means(decided));
  const auto low = signed_rank_interval(lowest, level), high = signed_rank_interval(highest, level);
  if (low && high) result.interval = {ratio_of(low->low), ratio_of(high->high)};
  return result;
}

}  // namespace trainopt
