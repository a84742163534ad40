#include "compare/attribution.h"

#include <cmath>
#include <utility>
#include <vector>

namespace trainopt {

const char* const kShareRule =
    "a switch's share is the geometric mean of its gain alone and its gain within the stack, which is its Shapley "
    "value if switches interact in pairs only; what the shares then "
    "miss of the total is spread over them in proportion to their size";

void attribute(Ablation& ablation) {
  if (!ablation.total.ratio) return;
  double sum = 0, size = 0;
  std::vector<std::pair<SwitchRow*, double>> measured;
  for (auto& row : ablation.switches) {
    if (!row.alone.ratio && !row.in_stack.ratio) continue;
    const double alone = std::log(row.alone.ratio.value_or(row.in_stack.ratio.value_or(1))),
                 in_stack = std::log(row.in_stack.ratio.value_or(row.alone.ratio.value_or(1)));
    measured.emplace_back(&row, (alone + in_stack) / 2);
    sum += measured.back().second;
    size += std::abs(measured.back().second);
  }
  const double residue = std::log(*ablation.total.ratio) - sum;
  ablation.residue = std::exp(residue);
  for (auto& [row, share] : measured)
    row->share =
        std::exp(share + residue * (size > 0 ? std::abs(share) / size : 1 / static_cast<double>(measured.size())));
}

}  // namespace trainopt
