#include "report/charts/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trainopt::report {
namespace {

Html histogram_numbers(const Histogram& chart) {
  Table table{.caption = chart.title, .columns = {{"from", true}, {"to", true}, {"values", true}}, .rows = {}};
  for (const auto& bin : chart.bins)
    table.rows.push_back(
        {number_text(bin.low), number_text(bin.high), number_text(static_cast<double>(bin.count), 12)});
  return draw(table);
}

Html bins_of(const std::vector<Histogram::Bin>& bins, const Range& x, double most) {
  Path path_of_bins;
  for (const auto& bin : bins) {
    if (bin.count <= 0) continue;
    const double left = kWidth * x.share(bin.low), right = kWidth * x.share(bin.high);
    const double inset = std::min(1.0, (right - left) / 8);
    const double y = kPlotHeight * (1 - static_cast<double>(bin.count) / most);
    path_of_bins.move(left + inset, kPlotHeight);
    path_of_bins.line(left + inset, y);
    path_of_bins.line(right - inset, y);
    path_of_bins.line(right - inset, kPlotHeight);
    path_of_bins.close();
  }
  return path(path_of_bins, "bins c0");
}

}  // namespace

Html draw(const Histogram& chart) {
  int64_t total = 0, most = 0;
  for (const auto& bin : chart.bins) total += bin.count, most = std::max(most, bin.count);
  if (total == 0) return draw_empty("histogram", chart.key, chart.title, chart.unit);
  Range x{chart.bins.front().low, chart.bins.back().high};
  if (!(x.low < x.high)) x = padded(x.low, x.high);
  const Range y{0, 1.05 * static_cast<double>(most)};
  const double top = 8 + marks_height(chart.marks);
  const auto y_ticks = ticks(y, 5, true);
  const Html content =
      y_axis(y_ticks, y, top) + x_axis(ticks(x, labels_that_fit(x, false)), x, top, kPlotHeight, chart.unit) +
      stretched(top, kPlotHeight, bins_of(chart.bins, x, y.high)) + draw_marks(chart.marks, x, top, kPlotHeight);
  Json bins = Json::array();
  for (const auto& bin : chart.bins) bins.push_back({json_number(bin.low), json_number(bin.high), bin.count});
  const Json data{{"unit", safe_text(chart.unit)}, {"bins", bins}, {"plot_top", top}, {"plot_height", kPlotHeight}};
  std::string label = fmt::format("{}: {} values", chart.title, total + chart.beyond);
  for (const auto& mark : chart.marks) label += ", " + mark.text;
  const Html beyond =
      chart.beyond == 0
          ? ""
          : element("p", {{"class", "remark"}},
                    fmt::format("{} more beyond {}{}{}.", number_text(static_cast<double>(chart.beyond), 12),
                                number_text(x.high), chart.unit.empty() ? "" : " ", escape(chart.unit)));
  return draw(Frame{.kind = "histogram",
                    .key = chart.key,
                    .title = chart.title,
                    .unit = {},
                    .legend = {},
                    .plot = plot_box(label, std::max(28.0, label_width(y_ticks) + 12),
                                     svg(top + kPlotHeight + kXAxisHeight, "bars", content)) +
                            beyond,
                    .data = embedded_json(data),
                    .numbers = histogram_numbers(chart)});
}

}  // namespace trainopt::report
