#include "report/charts/frame.h"

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

namespace {

struct Step {
  double from, to;
  std::optional<std::pair<double, double>> interval;  ///< interval of `to`
};

double usable(double factor) { return std::isfinite(factor) && factor >= 0 ? factor : 1; }

std::vector<Step> steps_of(const Waterfall& chart) {
  std::vector<Step> steps;
  double at = chart.begin;
  for (const auto& row : chart.rows) {
    Step step{at, at * usable(row.factor), {}};
    if (row.interval) step.interval = {at * usable(row.interval->first), at * usable(row.interval->second)};
    at = step.to;
    steps.push_back(step);
  }
  return steps;
}

Html total_row(double value, const Share& share) { return rectangle(share(0), share(value), 4, kRowHeight - 8, 0, ""); }

Html step_row(const Step& step, const Share& share) {
  const double from = share(step.from), to = share(step.to);
  const bool up = step.to >= step.from;
  Html out = fmt::format("<rect class=\"step {}\" x=\"{}\" y=\"4\" width=\"{}\" height=\"{:g}\"/>",
                         up ? "is-faster" : "is-slower", percent(std::min(from, to)), percent(std::abs(to - from)),
                         kRowHeight - 8);
  if (step.interval) {
    const double low = share(step.interval->first), high = share(step.interval->second), middle = kRowHeight / 2;
    out += fmt::format("<line class=\"interval\" x1=\"{}\" x2=\"{}\" y1=\"{:g}\" y2=\"{:g}\"/>", percent(low),
                       percent(high), middle, middle);
    for (const double end : {low, high}) out += vertical_line(end, middle - 4, middle + 4, "interval");
  }
  return out + vertical_line(to, 4, kRowHeight, "join");
}

}  // namespace

Html draw(const Waterfall& chart) {
  if (!std::isfinite(chart.begin)) return draw_empty("waterfall", chart.key, chart.title, chart.unit);
  const auto steps = steps_of(chart);
  double greatest = std::max(chart.begin, 0.0), least = std::min(chart.begin, 0.0);
  const auto include = [&](double value) {
    if (std::isfinite(value)) greatest = std::max(greatest, value), least = std::min(least, value);
  };
  for (const auto& step : steps) {
    include(step.to);
    if (step.interval) include(step.interval->first), include(step.interval->second);
  }
  const Range range = least < greatest ? Range{least, greatest} : Range{0, 1};
  const auto marks = ticks(range, std::min(6, labels_that_fit(range, false)));
  const Share share = [&](double value) { return range.share(value); };
  const auto amount = [&](double value) { return escape(number_text(value, 4) + " " + chart.unit); };

  std::vector<RowDrawing> rows{{.name = chart.begin_name,
                                .drawing = row_svg(marks, share, total_row(chart.begin, share), 0),
                                .text = amount(chart.begin),
                                .classes = "total"}};
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool up = steps[i].to >= steps[i].from;
    rows.push_back({.name = chart.rows[i].name,
                    .drawing = row_svg(marks, share, step_row(steps[i], share), 0),
                    .text = element("span", {{"class", "sign"}, {"aria-hidden", "true"}}, up ? "▲" : "▼") + " " +
                            escape(chart.rows[i].text),
                    .classes = up ? "verdict-row is-faster" : "verdict-row is-slower"});
  }
  const double end = steps.empty() ? chart.begin : steps.back().to;
  rows.push_back({.name = chart.end_name,
                  .drawing = row_svg(marks, share, total_row(end, share), 0),
                  .text = amount(end),
                  .classes = "total"});
  return draw(Frame{.kind = "waterfall",
                    .key = chart.key,
                    .title = chart.title,
                    .unit = chart.unit,
                    .legend = {},
                    .plot = row_table(chart.title, rows, axis_svg(marks, share)),
                    .data = {},
                    .numbers = {}});
}

}  // namespace trainopt::report
