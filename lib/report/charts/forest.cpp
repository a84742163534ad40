#include "report/charts/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trainopt::report {
namespace {

struct Look {
  const char *name, *shape;
};

/// A shape for each verdict, 12 pixels wide, around (0, 0).
Look look_of(Forest::Verdict verdict) {
  switch (verdict) {
    case Forest::Verdict::faster:
      return {"is-faster", "<path class=\"marker\" d=\"M-5-6L7 0L-5 6z\"/>"};
    case Forest::Verdict::slower:
      return {"is-slower", "<path class=\"marker\" d=\"M5-6L-7 0L5 6z\"/>"};
    case Forest::Verdict::none:
      return {"is-none", "<path class=\"marker\" d=\"M-5-5h10v10h-10z\"/>"};
    case Forest::Verdict::undecided:
      break;
  }
  return {"is-undecided", "<circle class=\"marker open\" r=\"5\"/>"};
}

bool is_ratio(double value) { return std::isfinite(value) && value > 0; }

Range forest_range(const Forest& chart) {
  double low = 0.95, high = 1.05;
  const auto include = [&](double value) {
    if (!is_ratio(value)) return;
    low = std::min(low, std::clamp(value, 1e-9, 1e9)), high = std::max(high, std::clamp(value, 1e-9, 1e9));
  };
  for (const auto& row : chart.rows) {
    include(row.ratio);
    if (row.interval) include(row.interval->first), include(row.interval->second);
  }
  const double margin = std::pow(high / low, 0.06);
  return {low / margin, high * margin};
}

Html marker_of(const Forest::Row& row, const Share& share) {
  if (!is_ratio(row.ratio)) return {};
  constexpr double kMiddle = kRowHeight / 2;
  Html out;
  if (row.interval && is_ratio(row.interval->first) && is_ratio(row.interval->second)) {
    const double from = share(row.interval->first), to = share(row.interval->second);
    out += fmt::format("<line class=\"interval\" x1=\"{}\" x2=\"{}\" y1=\"{:g}\" y2=\"{:g}\"/>", percent(from),
                       percent(to), kMiddle, kMiddle);
    for (const double end : {from, to}) out += vertical_line(end, kMiddle - 4, kMiddle + 4, "interval");
  }
  return out + placed(share(row.ratio), kMiddle, look_of(row.verdict).shape);
}

}  // namespace

Html draw(const Forest& chart) {
  if (chart.rows.empty()) return draw_empty("forest", chart.key, chart.title, "");
  const Range range = forest_range(chart);
  const Range logarithmic{std::log(range.low), std::log(range.high)};
  const auto marks = ratio_ticks(range, 4);
  const Share share = [&](double value) { return is_ratio(value) ? logarithmic.share(std::log(value)) : 0; };
  std::vector<RowDrawing> rows;
  for (const auto& row : chart.rows)
    rows.push_back({.name = row.name,
                    .drawing = row_svg(marks, share, marker_of(row, share), 1),
                    .text = escape(row.text),
                    .classes = std::string("verdict-row ") + look_of(row.verdict).name});
  const Html ends =
      element("div", {{"class", "ends"}},
              element("span", "◀ " + escape(chart.slower)) + element("span", escape(chart.faster) + " ▶"));
  return draw(Frame{.kind = "forest",
                    .key = chart.key,
                    .title = chart.title,
                    .unit = {},
                    .legend = {},
                    .plot = row_table(chart.title, rows, axis_svg(marks, share) + ends),
                    .data = {},
                    .numbers = {}});
}

}  // namespace trainopt::report
