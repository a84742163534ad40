#include "report/charts/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trainopt::report {
namespace {

struct Step {
  double from, to;
  std::optional<std::pair<double, double>> interval;  ///< of `to`
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
