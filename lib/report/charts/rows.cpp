#include "report/charts/rows.h"

namespace trainopt::report {

Html row_svg(const std::vector<Tick>& ticks, const Share& share, const Html& content, double strong) {
  Html grid;
  for (const auto& tick : ticks)
    grid += vertical_line(share(tick.at), 0, kRowHeight, tick.at == strong ? "grid zero" : "grid");
  return svg(kRowHeight, "row", grid + content);
}

Html axis_svg(const std::vector<Tick>& ticks, const Share& share) {
  Html labels;
  for (const auto& tick : ticks) labels += svg_text(share(tick.at), 12, anchor_at(share(tick.at)), tick.text, "label");
  return svg(16, "axis", labels);
}

}  // namespace trainopt::report
