#include "optimizations/pipeline_stages/balance.h"

#include "base/error.h"

#include <algorithm>
#include <limits>

namespace trainopt::pipeline_stages {

std::vector<UnitRange> balanced_stages(const std::vector<double>& costs, int64_t stages) {
  const size_t units = costs.size(), count = static_cast<size_t>(stages);
  TRAINOPT_CHECK(1 <= count && count <= units);
  std::vector<double> before(units + 1, 0);  // cost of the units before each
  for (size_t unit = 0; unit < units; ++unit) before[unit + 1] = before[unit] + costs[unit];
  // best[s][end]: cost of the most expensive of s + 1 stages that hold the first `end` units; begin: of the last one.
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(count, std::vector<double>(units + 1, kNever));
  std::vector<std::vector<size_t>> begin(count, std::vector<size_t>(units + 1, 0));
  for (size_t end = 1; end <= units; ++end) best[0][end] = before[end];
  for (size_t stage = 1; stage < count; ++stage)
    for (size_t end = stage + 1; end <= units; ++end)
      for (size_t first = stage; first < end; ++first) {
        const double most = std::max(best[stage - 1][first], before[end] - before[first]);
        if (most >= best[stage][end]) continue;
        best[stage][end] = most;
        begin[stage][end] = first;
      }
  std::vector<UnitRange> ranges(count);
  size_t end = units;
  for (size_t stage = count; stage-- > 0;) {
    ranges[stage] = {.first = begin[stage][end], .end = end};
    end = ranges[stage].first;
  }
  return ranges;
}

}  // namespace trainopt::pipeline_stages
