// What all charts share: the figure around them, legends, axes, and the numbers that page.js reads.
#pragma once

#include "report/charts.h"
#include "report/charts/axis.h"
#include "report/charts/svg.h"

#include <functional>

namespace trainopt::report {

struct Frame {
  std::string kind;  ///< "line": the class is line-chart
  std::string key, title, unit;
  Html legend, plot;
  Html data;     ///< embedded_json() or nothing
  Html numbers;  ///< a table, folded
};
Html draw(const Frame& frame);
/// A chart without values.
Html draw_empty(const std::string& kind, const std::string& key, const std::string& title, const std::string& unit);

/// Classes of the i-th series: its colour and its dashes.
std::string series_classes(size_t i);
Html rectangle(double from, double to, double y, double height, size_t part, const std::string& title);
enum class Swatch { line, area };
Html swatch(Swatch kind, size_t i);
Html legend(Swatch kind, const std::vector<std::string>& names);

/// The box that the script listens to: focusable, with room for labels at the left (pixels).
Html plot_box(const std::string& label, double left, const Html& content);
inline constexpr double kPlotHeight = 180;
Html y_axis(const std::vector<Tick>& ticks, const Range& range, double top);
Html x_axis(const std::vector<Tick>& ticks, const Range& range, double top, double height, const std::string& title);
/// As many labels as stand side by side in the width of a phone.
int labels_that_fit(const Range& range, bool whole);
inline constexpr double kXAxisHeight = 36;

/// Lines at `marks`, and their texts one below the other, above the plot; from five on, the lines only.
Html draw_marks(const std::vector<Mark>& marks, const Range& x, double top, double height);
double marks_height(const std::vector<Mark>& marks);

/// {"first": …, "last": …} and {"mean": …, "low": …, "high": …} of columns; equal arrays are left out.
Json place_json(const std::vector<Column>& columns);
Json value_json(const std::vector<Column>& columns);
/// A number of the page's JSON with `digits` significant digits; null if it is not finite.
Json json_number(double value, int digits = 6);

/// Lines of a chart made of rows: name, drawing, text. On narrow screens the drawing is below the name.
struct RowDrawing {
  std::string name;
  Html drawing;  ///< a complete svg
  Html text;
  std::string classes;
};
Html row_table(const std::string& caption, const std::vector<RowDrawing>& rows, const Html& axis);

// The axis below and the grid behind charts made of rows.

inline constexpr double kRowHeight = 26;

using Share = std::function<double(double)>;  ///< from a value to its share of the width
/// One row: grid lines behind `content`.
Html row_svg(const std::vector<Tick>& ticks, const Share& share, const Html& content, double strong);
Html axis_svg(const std::vector<Tick>& ticks, const Share& share);

}  // namespace trainopt::report
