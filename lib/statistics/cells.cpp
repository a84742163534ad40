#include "statistics/cells.h"

#include "base/error.h"
#include "statistics/spread.h"
#include "statistics/welch.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trainopt {
namespace {

double squares_about(const CellPairs& pairs, double centre) {
  double sum = 0;
  for (const double value : pairs) sum += (value - centre) * (value - centre);
  return sum;
}

struct Pooled {
  double variance = 0, degrees = 0;
};

Pooled pool(std::span<const CellPairs> cells) {
  Pooled pooled;
  for (const CellPairs& pairs : cells) {
    if (pairs.size() < 2) continue;
    pooled.variance += squares_about(pairs, mean_of(pairs));
    pooled.degrees += static_cast<double>(pairs.size() - 1);
  }
  if (pooled.degrees > 0) pooled.variance /= pooled.degrees;
  return pooled;
}

/// Standard error of the mean of one cell's pairs.
double standard_error(const CellPairs& pairs, const Pooled& pooled) {
  const auto count = static_cast<double>(pairs.size());
  const double own = squares_about(pairs, mean_of(pairs)) / (count - 1);
  return std::sqrt(std::max(own, pooled.variance) / count);
}

/// Holm: compares the smallest p-value with error/m, the next with error/(m − 1) and so on, until one is too large.
std::vector<bool> rejected_by_holm(const std::vector<double>& p_values, double error) {
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t x, size_t y) { return p_values[x] < p_values[y]; });
  std::vector<bool> rejected(p_values.size());
  for (size_t i = 0; i < order.size(); ++i) {
    if (p_values[order[i]] > error / static_cast<double>(order.size() - i)) break;
    rejected[order[i]] = true;
  }
  return rejected;
}

}  // namespace

CellsResult judge_cells(std::span<const CellPairs> cells, double level, double min_effect) {
  TRAINOPT_CHECK(level > 0 && level < 1 && min_effect > 0);
  CellsResult result;
  result.cells.resize(cells.size());
  const Pooled pooled = pool(cells);
  std::vector<size_t> judged;
  std::vector<double> p_values;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (cells[i].empty()) continue;
    result.cells[i].ratio = std::exp(mean_of(cells[i]));
    if (cells[i].size() < 2) continue;
    judged.push_back(i);
    const double error = result.cells[i].standard_error = standard_error(cells[i], pooled);
    p_values.push_back(error > 0 ? 2 * student_tail(std::abs(mean_of(cells[i])) / error, pooled.degrees) : 0);
  }
  if (judged.empty()) return result;
  result.pair_sd = std::sqrt(pooled.variance);
  const std::vector<bool> differs = rejected_by_holm(p_values, 1 - level);
  const double reach = result.reach =
      student_quantile((1 - level) / 2 / static_cast<double>(judged.size()), pooled.degrees);
  for (size_t k = 0; k < judged.size(); ++k) {
    const CellPairs& pairs = cells[judged[k]];
    CellResult& cell = result.cells[judged[k]];
    const double centre = mean_of(pairs), half = reach * cell.standard_error;
    Interval logs{centre - half, centre + half};
    if (differs[k])
      (centre > 0 ? logs.low : logs.high) = centre > 0 ? std::max(logs.low, 0.0) : std::min(logs.high, 0.0);
    cell.interval = Interval{std::exp(logs.low), std::exp(logs.high)};
    cell.verdict = judge(*cell.interval, min_effect);
    if (differs[k] && cell.verdict == Verdict::inconclusive) cell.verdict = centre > 0 ? Verdict::pays : Verdict::costs;
  }
  // Enough that a cell without an effect has its interval within min_effect nine times out of ten.
  const double wanted = std::log1p(min_effect), needed = reach + student_quantile(0.1, pooled.degrees);
  result.pairs_needed =
      std::max<int64_t>(2, static_cast<int64_t>(std::ceil(needed * needed * pooled.variance / (wanted * wanted))));
  return result;
}

}  // namespace trainopt
