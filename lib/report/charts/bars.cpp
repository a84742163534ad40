#include "report/charts/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trainopt::report {
namespace {

std::vector<std::string> part_names(const Bars& chart) {
  std::vector<std::string> names;
  for (const auto& row : chart.rows)
    for (const auto& part : row.parts)
      if (std::find(names.begin(), names.end(), part.name) == names.end()) names.push_back(part.name);
  return names;
}

size_t index_of(const std::vector<std::string>& names, const std::string& name) {
  return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

Range bars_range(const Bars& chart) {
  double least = 0, greatest = 0;
  for (const auto& row : chart.rows) {
    double below = 0, above = 0;
    for (const auto& part : row.parts)
      if (std::isfinite(part.value)) (part.value < 0 ? below : above) += part.value;
    least = std::min(least, below), greatest = std::max(greatest, above);
  }
  return least < greatest ? Range{least, greatest} : Range{0, 1};
}

/// Positive parts to the right of zero, negative parts to its left.
Html bar_of(const Bars::Row& row, const std::vector<std::string>& names, const Range& range) {
  Html out;
  double below = 0, above = 0;
  for (const auto& part : row.parts) {
    if (!std::isfinite(part.value)) continue;
    double& end = part.value < 0 ? below : above;
    const std::string title = part.name.empty() ? part.text : part.name + ": " + part.text;
    out += rectangle(range.share(end), range.share(end + part.value), 4, kRowHeight - 8, index_of(names, part.name),
                     title);
    end += part.value;
  }
  return out;
}

Html texts_of(const Bars::Row& row, const std::vector<std::string>& names) {
  if (names.size() <= 1) return row.parts.empty() ? "–" : escape(row.parts[0].text);
  Html out;
  for (const auto& part : row.parts)
    out += element("span", {{"class", "part-text"}},
                   swatch(Swatch::area, index_of(names, part.name)) +
                       element("span", {{"class", "spoken"}}, escape(part.name) + " ") + escape(part.text)) +
           " ";
  return out;
}

}  // namespace

Html draw(const Bars& chart) {
  if (chart.rows.empty()) return draw_empty("bars", chart.key, chart.title, chart.unit);
  const auto names = part_names(chart);
  const Range range = bars_range(chart);
  const auto marks = ticks(range, std::min(6, labels_that_fit(range, false)));
  const Share share = [&](double value) { return range.share(value); };
  std::vector<RowDrawing> rows;
  for (const auto& row : chart.rows)
    rows.push_back({.name = row.name,
                    .drawing = row_svg(marks, share, bar_of(row, names, range), 0),
                    .text = texts_of(row, names),
                    .classes = names.size() > 1 ? "bar parted" : "bar"});
  return draw(Frame{.kind = "bars",
                    .key = chart.key,
                    .title = chart.title,
                    .unit = chart.unit,
                    .legend = names.size() > 1 ? legend(Swatch::area, names) : "",
                    .plot = row_table(chart.title, rows, axis_svg(marks, share)),
                    .data = {},
                    .numbers = {}});
}

}  // namespace trainopt::report
