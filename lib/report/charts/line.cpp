#include "report/charts/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace trainopt::report {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double middle(const Column& column) { return (column.first + column.last) / 2; }

/// Distance of neighbouring columns above which nothing was measured between them.
double gap_of(const std::vector<Column>& columns) {
  std::vector<double> distances;
  for (size_t i = 1; i < columns.size(); ++i) distances.push_back(middle(columns[i]) - middle(columns[i - 1]));
  if (distances.empty()) return 0;
  const auto at = distances.begin() + static_cast<std::ptrdiff_t>(distances.size() / 2);
  std::nth_element(distances.begin(), at, distances.end());
  return 5 * *at;
}

struct Scale {
  Range x, y;
  double at_x(double value) const { return kWidth * (value - x.low) / x.span(); }
  double at_y(double value) const { return kPlotHeight * (y.high - value) / y.span(); }
};

/// The columns without gaps between them, as [begin, end).
std::vector<std::pair<size_t, size_t>> runs_of(const std::vector<Column>& columns) {
  const double gap = gap_of(columns);
  std::vector<std::pair<size_t, size_t>> runs;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (i == 0 || middle(columns[i]) - middle(columns[i - 1]) > gap) runs.push_back({i, i});
    runs.back().second = i + 1;
  }
  return runs;
}

Html draw_series(const std::vector<Column>& columns, const Scale& scale, const std::string& classes) {
  Path line, band;
  const bool spread = std::any_of(columns.begin(), columns.end(), [](const Column& c) { return c.low < c.high; });
  for (const auto& [begin, end] : runs_of(columns)) {
    for (size_t i = begin; i < end; ++i) {
      const double x = scale.at_x(middle(columns[i])), y = scale.at_y(columns[i].mean());
      i == begin ? line.move(x, y) : line.line(x, y);
    }
    if (end - begin == 1) line.line(scale.at_x(middle(columns[begin])), scale.at_y(columns[begin].mean()));  // a dot
    if (!spread) continue;
    for (size_t i = begin; i < end; ++i) {
      const double x = scale.at_x(middle(columns[i])), y = scale.at_y(columns[i].high);
      i == begin ? band.move(x, y) : band.line(x, y);
    }
    for (size_t i = end; i-- > begin;) band.line(scale.at_x(middle(columns[i])), scale.at_y(columns[i].low));
    band.close();
  }
  return path(band, "band " + classes) + path(line, "line " + classes);
}

/// The mean of the column at `x` or, between two columns, of the one before.
double value_at(const std::vector<Column>& columns, double x) {
  const auto after =
      std::upper_bound(columns.begin(), columns.end(), x, [](double at, const Column& c) { return at < c.first; });
  return after == columns.begin() ? 0 : std::prev(after)->mean();
}

/// Each series on top of those before it, at the places of the series with the most columns.
std::vector<std::vector<Column>> pile(const std::vector<Series>& series) {
  const auto& longest = *std::max_element(series.begin(), series.end(), [](const Series& a, const Series& b) {
    return a.columns.size() < b.columns.size();
  });
  std::vector<std::vector<Column>> out;
  std::vector<double> below(longest.columns.size(), 0);
  for (const auto& one : series) {
    std::vector<Column> columns = longest.columns;
    for (size_t i = 0; i < columns.size(); ++i) {
      const double top = below[i] + value_at(one.columns, middle(columns[i]));
      columns[i].low = below[i];
      columns[i].high = top;
      columns[i].sum = top * static_cast<double>(columns[i].count);
      below[i] = top;
    }
    out.push_back(std::move(columns));
  }
  return out;
}

Json series_json(const LineChart& chart) {
  Json places = Json::array(), series = Json::array();
  for (const auto& one : chart.series) {
    const Json place = place_json(one.columns);
    const auto found = std::find(places.begin(), places.end(), place);
    Json item{{"name", safe_text(one.name)}, {"place", found - places.begin()}};
    item.update(value_json(one.columns));
    if (found == places.end()) places.push_back(place);
    series.push_back(std::move(item));
  }
  Json marks = Json::array();
  for (const auto& mark : chart.marks) marks.push_back({json_number(mark.x, 12), safe_text(mark.text)});
  return {{"x_title", safe_text(chart.x_title)},
          {"unit", safe_text(chart.unit)},
          {"stacked", chart.stacked},
          {"from_zero", chart.from_zero || chart.stacked},
          {"top", chart.top ? json_number(*chart.top) : Json()},
          {"marks", marks},
          {"places", places},
          {"series", series}};
}

Html numbers_table(const LineChart& chart) {
  Table table{.caption = chart.title,
              .columns = {{"series"},
                          {"values", true},
                          {"first", true},
                          {"last", true},
                          {"mean", true},
                          {"least", true},
                          {"greatest", true}},
              .rows = {}};
  for (const auto& one : chart.series) {
    Column all;
    for (const auto& column : one.columns) all.add(column);
    std::vector<Html> row{escape(one.name), number_text(static_cast<double>(std::max(one.values, all.count)), 12)};
    if (all.count == 0)
      row.insert(row.end(), 5, "–");
    else
      for (const double value : {one.columns.front().mean(), one.columns.back().mean(), all.mean(), all.low, all.high})
        row.push_back(number_text(value, 5));
    table.rows.push_back(row);
  }
  Html marks;
  for (const auto& mark : chart.marks)
    marks += element("li", escape(chart.x_title + " ") + number_text(mark.x, 12) + ": " + escape(mark.text));
  return draw(table) + (marks.empty() ? "" : element("ul", {{"class", "mark-list"}}, marks));
}

struct Extent {
  double x_low = kNone, x_high = kNone, low = kNone, high = kNone;
  bool whole = true;  ///< all places are whole numbers
  size_t columns = 0;
};

Extent extent_of(const std::vector<std::vector<Column>>& drawn) {
  Extent out;
  for (const auto& columns : drawn)
    for (const auto& column : columns) {
      out.x_low = std::fmin(out.x_low, column.first);
      out.x_high = std::fmax(out.x_high, column.last);
      out.low = std::fmin(out.low, column.low);
      out.high = std::fmax(out.high, column.high);
      out.whole = out.whole && column.first == std::floor(column.first) && column.last == std::floor(column.last);
      ++out.columns;
    }
  return out;
}

std::string spoken(const LineChart& chart) {
  std::string names;
  for (const auto& one : chart.series) names += (names.empty() ? "" : ", ") + one.name;
  return fmt::format("{}{}: chart of {} over {}. Arrow keys show values, plus and minus zoom, 0 resets.", chart.title,
                     chart.unit.empty() ? "" : " in " + chart.unit, names, chart.x_title);
}

}  // namespace

Html draw(const LineChart& chart) {
  std::vector<std::vector<Column>> drawn;
  if (chart.stacked && !chart.series.empty())
    drawn = pile(chart.series);
  else
    for (const auto& one : chart.series) drawn.push_back(one.columns);
  const Extent extent = extent_of(drawn);
  if (extent.columns == 0) return draw_empty("line", chart.key, chart.title, chart.unit);

  Scale scale;
  scale.x =
      extent.x_low < extent.x_high ? Range{extent.x_low, extent.x_high} : Range{extent.x_low - 0.5, extent.x_low + 0.5};
  scale.y = padded(extent.low, extent.high, chart.from_zero || chart.stacked, chart.top);
  const size_t limit = std::clamp<size_t>(4096 / drawn.size(), 128, 512);
  Html shapes;
  for (size_t i = drawn.size(); i-- > 0;)  // the first series is on top
    shapes += draw_series(merged(drawn[i], limit), scale, series_classes(i));

  const double top = 8 + marks_height(chart.marks);
  const auto y_ticks = ticks(scale.y, 5);
  const auto x_ticks = ticks(scale.x, labels_that_fit(scale.x, extent.whole), extent.whole);
  const Html content = y_axis(y_ticks, scale.y, top) + x_axis(x_ticks, scale.x, top, kPlotHeight, chart.x_title) +
                       draw_marks(chart.marks, scale.x, top, kPlotHeight) + stretched(top, kPlotHeight, shapes);
  std::vector<std::string> names;
  for (const auto& one : chart.series) names.push_back(one.name);
  Json data = series_json(chart);
  data["plot_top"] = top;
  data["plot_height"] = kPlotHeight;
  data["whole"] = extent.whole;
  return draw(
      Frame{.kind = "line",
            .key = chart.key,
            .title = chart.title,
            .unit = chart.unit,
            .legend = legend(Swatch::line, names),
            .plot = plot_box(spoken(chart), std::max(28.0, label_width(y_ticks) + 12),
                             svg(top + kPlotHeight + kXAxisHeight, chart.stacked ? "stacked" : "lines", content)),
            .data = embedded_json(data),
            .numbers = numbers_table(chart)});
}

}  // namespace trainopt::report
