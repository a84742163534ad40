// Charts as inline SVG, complete without a script: axes, legend, title and a table of the same numbers for screen
// readers where it is short. page.js adds hover values and zoom from the numbers embedded in each chart.
#pragma once

#include "report/columns.h"
#include "report/html.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt::report {

/// One line of a chart over steps or seconds.
struct Series {
  std::string name;
  std::vector<Column> columns;
  int64_t values = 0;  ///< how many the columns stand for
};

/// Something that happened at a place of the horizontal axis: an evaluation, a resume, the end of the warm-up.
struct Mark {
  double x = 0;
  std::string text;
};

/// Lines with their bands of least and greatest values; a gap where nothing was measured.
struct LineChart {
  std::string key;      ///< unique in the page: "loss", "throughput"
  std::string title;    ///< "Loss"
  std::string unit;     ///< unit of the vertical axis: "ms"; empty if dimensionless
  std::string x_title;  ///< "step" or "s"
  std::vector<Series> series;
  std::vector<Mark> marks;
  bool from_zero = false;     ///< the vertical axis begins at zero
  bool stacked = false;       ///< series add up: areas, drawn by their means
  std::optional<double> top;  ///< the vertical axis ends here: 100 for a percentage
};
Html draw(const LineChart& chart);

/// How often values fall into ranges of equal width, with percentiles as vertical lines.
struct Histogram {
  struct Bin {
    double low, high;
    int64_t count;
  };
  std::string key, title, unit;
  std::vector<Bin> bins;
  std::vector<Mark> marks;  ///< "p50 25.7 ms"
  int64_t beyond = 0;       ///< values above the last bin, stated in words
};
Html draw(const Histogram& chart);

/// Horizontal bars, each of one or more parts that add up; parts with the same name have the same colour.
struct Bars {
  struct Part {
    std::string name;
    double value;
    std::string text;  ///< "42.6 MiB"
  };
  struct Row {
    std::string name;
    std::vector<Part> parts;
  };
  std::string key, title, unit;
  std::vector<Row> rows;
};
Html draw(const Bars& chart);

/// Ratios with intervals on a logarithmic axis around 1; shapes, not only colours, tell faster, slower and undecided.
struct Forest {
  enum class Verdict { faster, slower, none, undecided };
  struct Row {
    std::string name;
    double ratio;
    std::optional<std::pair<double, double>> interval;
    Verdict verdict;
    std::string text;  ///< shown at the right: "1.31× (1.28–1.34)"
  };
  std::string key, title;
  std::string faster, slower;  ///< the two ends of the axis in words: "faster than the baseline"
  std::vector<Row> rows;
};
Html draw(const Forest& chart);

/// From one throughput to another by factors: each row begins where the one above ends.
struct Waterfall {
  struct Row {
    std::string name;
    double factor;
    std::optional<std::pair<double, double>> interval;  ///< the factor's interval
    std::string text;
  };
  std::string key, title, unit;
  double begin = 0;  ///< in `unit`
  std::string begin_name, end_name;
  std::vector<Row> rows;
};
Html draw(const Waterfall& chart);

/// A row for each rank, a cell for each column of steps; a darker cell is a longer time.
struct Strip {
  struct Row {
    std::string name;  ///< "rank 3"
    std::vector<Column> columns;
  };
  std::string key, title, unit, x_title;
  std::vector<Row> rows;
};
Html draw(const Strip& chart);

}  // namespace trainopt::report
