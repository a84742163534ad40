#include "report/charts/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trainopt::report {
namespace {

constexpr int kShades = 8;
constexpr size_t kCells = 240;

struct StripScale {
  Range x, values;
  double row_height;
};

int shade(double value, const Range& range) {
  return std::min(kShades - 1, static_cast<int>(range.share(value) * kShades));
}

Html cells_of(const std::vector<Column>& columns, double y, const StripScale& scale) {
  std::vector<Path> paths(kShades);
  for (size_t i = 0; i < columns.size(); ++i) {
    // A cell reaches to the next one, so that there is no seam between neighbours.
    const bool joined = i + 1 < columns.size() && columns[i + 1].first - columns[i].last <= 1;
    const double end = joined ? columns[i + 1].first : columns[i].last + 1;
    const double x1 = kWidth * scale.x.share(columns[i].first), x2 = kWidth * scale.x.share(end);
    Path& path = paths[static_cast<size_t>(shade(columns[i].mean(), scale.values))];
    path.move(x1, y);
    path.line(x2, y);
    path.line(x2, y + scale.row_height - 2);
    path.line(x1, y + scale.row_height - 2);
    path.close();
  }
  Html out;
  for (int i = 0; i < kShades; ++i) out += path(paths[static_cast<size_t>(i)], fmt::format("shade h{}", i));
  return out;
}

Html shade_legend(const Range& range, const std::string& unit) {
  Html boxes;
  for (int i = 0; i < kShades; ++i)
    boxes += fmt::format("<rect class=\"shade h{}\" x=\"{}\" y=\"1\" width=\"14\" height=\"10\"/>", i, 14 * i);
  const Html scale = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"swatch\" width=\"{}\" height=\"12\" "
      "aria-hidden=\"true\">{}</svg>",
      14 * kShades, boxes);
  const std::string after = unit.empty() ? "" : " " + unit;
  return element("p", {{"class", "legend"}},
                 element("span", escape(number_text(range.low, 3) + after)) + scale +
                     element("span", escape(number_text(range.high, 3) + after)));
}

Html strip_numbers(const Strip& chart) {
  Table table{.caption = chart.title,
              .columns = {{"row"}, {"values", true}, {"mean", true}, {"least", true}, {"greatest", true}},
              .rows = {}};
  for (const auto& row : chart.rows) {
    Column all;
    for (const auto& column : row.columns) all.add(column);
    if (all.count == 0)
      table.rows.push_back({escape(row.name), "0", "–", "–", "–"});
    else
      table.rows.push_back({escape(row.name), number_text(static_cast<double>(all.count), 12),
                            number_text(all.mean(), 5), number_text(all.low, 5), number_text(all.high, 5)});
  }
  return draw(table);
}

/// The middle of a long name is left out.
std::string short_name(const std::string& name) {
  constexpr size_t kLongest = 16;
  std::vector<std::string> letters;
  for (const char c : safe_text(name)) {
    if (letters.empty() || (static_cast<unsigned char>(c) & 0xC0) != 0x80) letters.emplace_back();
    letters.back() += c;
  }
  std::string out;
  for (size_t i = 0; i < letters.size(); ++i) {
    if (letters.size() > kLongest && i == kLongest / 2) out += "…";
    if (letters.size() <= kLongest || i < kLongest / 2 || i + kLongest / 2 > letters.size()) out += letters[i];
  }
  return out;
}

Json strip_json(const Strip& chart, double row_height) {
  Json series = Json::array(), places = Json::array();
  for (const auto& row : chart.rows) {
    const Json place = place_json(row.columns);
    const auto found = std::find(places.begin(), places.end(), place);
    Json item{{"name", safe_text(row.name)}, {"place", found - places.begin()}};
    item.update(value_json(row.columns));
    if (found == places.end()) places.push_back(place);
    series.push_back(std::move(item));
  }
  return {{"x_title", safe_text(chart.x_title)},
          {"unit", safe_text(chart.unit)},
          {"marks", Json::array()},
          {"row_height", row_height},
          {"places", places},
          {"series", series}};
}

}  // namespace

Html draw(const Strip& chart) {
  double x_low = HUGE_VAL, x_high = -HUGE_VAL, low = HUGE_VAL, high = -HUGE_VAL;
  std::vector<std::vector<Column>> drawn;
  bool whole = true;
  for (const auto& row : chart.rows) {
    drawn.push_back(merged(row.columns, kCells));
    for (const auto& column : drawn.back()) {
      x_low = std::min(x_low, column.first), x_high = std::max(x_high, column.last + 1);
      low = std::min(low, column.mean()), high = std::max(high, column.mean());
      whole = whole && column.first == std::floor(column.first);
    }
  }
  if (!(x_low < x_high)) return draw_empty("strip", chart.key, chart.title, chart.unit);
  const StripScale scale{
      .x = {x_low, x_high}, .values = {low, high}, .row_height = chart.rows.size() > 16 ? 14.0 : 20.0};
  const double height = scale.row_height * static_cast<double>(chart.rows.size()), top = 4;
  Html shapes, names;
  size_t longest = 0;
  for (size_t i = 0; i < drawn.size(); ++i) {
    const double y = scale.row_height * static_cast<double>(i);
    shapes += cells_of(drawn[i], y, scale);
    const std::string name = short_name(chart.rows[i].name);
    longest = std::max(longest, characters(name));
    names += element("g", "<title>" + escape(chart.rows[i].name) + "</title>" +
                              svg_text(0, top + y + scale.row_height / 2 + 3, "end", name, "label", -8));
  }
  const auto x_ticks = ticks(scale.x, labels_that_fit(scale.x, whole), whole);
  Json data = strip_json(chart, scale.row_height);
  data["plot_top"] = top;
  data["plot_height"] = height;
  data["whole"] = whole;
  const std::string label = fmt::format(
      "{}: a row for each of {} over {}. Arrow keys show values, plus and minus zoom, "
      "0 resets.",
      chart.title, chart.rows.size(), chart.x_title);
  return draw(Frame{.kind = "strip",
                    .key = chart.key,
                    .title = chart.title,
                    .unit = chart.unit,
                    .legend = shade_legend(scale.values, chart.unit),
                    .plot = plot_box(label, 14 + 6.8 * static_cast<double>(longest),
                                     svg(top + height + kXAxisHeight, "cells",
                                         names + x_axis(x_ticks, scale.x, top, height, chart.x_title) +
                                             stretched(top, height, shapes))),
                    .data = embedded_json(data),
                    .numbers = strip_numbers(chart)});
}

}  // namespace trainopt::report
