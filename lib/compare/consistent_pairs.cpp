#include "compare/consistent_pairs.h"

#include "base/error.h"
#include "compare/sampling.h"

#include <cmath>

namespace trainopt {
namespace {

constexpr double kRounding = 1e-9;

}  // namespace

bool make_consistent(std::vector<std::optional<Interval>>& ratios, size_t arms) {
  const std::vector<PairOfArms> pairs = pairs_of(arms);
  TRAINOPT_CHECK(ratios.size() == pairs.size());
  // bound[i][j]: the most by which log throughput j exceeds i. Shortest paths (Floyd and Warshall) give the tightest
  // bounds; a cycle with a negative sum is a contradiction.
  std::vector<std::vector<double>> bound(arms, std::vector<double>(arms, INFINITY));
  for (size_t i = 0; i < arms; ++i) bound[i][i] = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (!ratios[i]) continue;
    bound[pairs[i].a][pairs[i].b] = std::log(ratios[i]->high);
    bound[pairs[i].b][pairs[i].a] = -std::log(ratios[i]->low);
  }
  for (size_t via = 0; via < arms; ++via)
    for (size_t i = 0; i < arms; ++i)
      for (size_t j = 0; j < arms; ++j) bound[i][j] = std::min(bound[i][j], bound[i][via] + bound[via][j]);
  for (size_t i = 0; i < arms; ++i)
    if (bound[i][i] < -kRounding) return false;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const double low = -bound[pairs[i].b][pairs[i].a], high = bound[pairs[i].a][pairs[i].b];
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    if (!ratios[i]) ratios[i] = Interval{0, INFINITY};
    if (low > std::log(ratios[i]->low) + kRounding) ratios[i]->low = std::exp(low);
    if (high < std::log(ratios[i]->high) - kRounding) ratios[i]->high = std::exp(high);
  }
  return true;
}

}  // namespace trainopt
