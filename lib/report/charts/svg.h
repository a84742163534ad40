// Elements of SVG. Places along the width are percentages and places along the height are pixels, so a drawing fits
// every width without a script, and its text never shrinks. Shapes that must stretch stand in a nested <svg>.
#pragma once

#include "report/html.h"

#include <string>

namespace trainopt::report {

/// Path data of straight lines, with one decimal; relative, because that is shorter.
class Path {
 public:
  void move(double x, double y) { add('m', x, y); }
  void line(double x, double y) { add('l', x, y); }
  void close() { data_ += 'z', command_ = 'z', x_ = begin_x_, y_ = begin_y_; }
  bool empty() const { return data_.empty(); }
  const std::string& data() const { return data_; }

 private:
  void add(char command, double x, double y);

  std::string data_;
  char command_ = 0;
  int64_t x_ = 0, y_ = 0, begin_x_ = 0, begin_y_ = 0;  // in tenths; the differences of rounded numbers do not drift
};

/// The width of the coordinates inside stretched().
inline constexpr double kWidth = 1000;

Html path(const Path& path, const std::string& classes);
/// A share of the width in [0, 1] as "37.5%".
std::string percent(double share);
/// `anchor`: start, middle or end; `dx` in pixels.
Html svg_text(double share, double y, const std::string& anchor, const std::string& text, const std::string& classes,
              double dx = 0);
Html vertical_line(double share, double y1, double y2, const std::string& classes);
Html horizontal_line(double y, const std::string& classes);
/// Its content has coordinates 0…kWidth × 0…height, is stretched to the whole width, and is clipped.
Html stretched(double y, double height, const Html& content);
/// `shape`, drawn around (0, 0), at a share of the width.
Html placed(double share, double y, const Html& shape);
/// The outermost element.
Html svg(double height, const std::string& classes, const Html& content);
/// The anchor at which a label near the edge stays inside.
std::string anchor_at(double share, double edge = 0.06);

}  // namespace trainopt::report
