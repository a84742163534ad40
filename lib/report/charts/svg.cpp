#include "report/charts/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trainopt::report {
namespace {

int64_t tenths(double value) { return std::isfinite(value) ? std::llround(std::clamp(value, -1e6, 1e6) * 10) : 0; }

/// " 1.5", "-.3", " 12": SVG needs no separator before a minus sign.
void append_tenths(std::string& out, int64_t value, bool separated) {
  if (value < 0)
    out += '-';
  else if (separated)
    out += ' ';
  const int64_t size = std::abs(value);
  if (size >= 10 || size % 10 == 0) out += std::to_string(size / 10);
  if (size % 10 != 0) out += '.' + std::to_string(size % 10);
}

}  // namespace

void Path::add(char command, double x, double y) {
  const int64_t new_x = tenths(x), new_y = tenths(y);
  const bool first = data_.empty();
  const bool repeated = command == 'l' && command_ == 'l';
  if (!repeated) data_ += first ? 'M' : command;
  append_tenths(data_, new_x - x_, repeated);
  append_tenths(data_, new_y - y_, true);
  x_ = new_x, y_ = new_y, command_ = command;
  if (command == 'm') begin_x_ = x_, begin_y_ = y_;
}

Html path(const Path& path, const std::string& classes) {
  return path.empty() ? "" : fmt::format("<path class=\"{}\" d=\"{}\"/>", classes, path.data());
}

std::string percent(double share) {
  std::string text = fmt::format("{:.2f}", 100 * share);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + '%';
}

Html svg_text(double share, double y, const std::string& anchor, const std::string& text, const std::string& classes,
              double dx) {
  const std::string shift = dx == 0 ? "" : fmt::format(" dx=\"{:g}\"", dx);
  return fmt::format("<text class=\"{}\" x=\"{}\" y=\"{:g}\"{} text-anchor=\"{}\">{}</text>", classes, percent(share),
                     y, shift, anchor, escape(text));
}

Html vertical_line(double share, double y1, double y2, const std::string& classes) {
  const std::string x = percent(share);
  return fmt::format("<line class=\"{}\" x1=\"{}\" x2=\"{}\" y1=\"{:g}\" y2=\"{:g}\"/>", classes, x, x, y1, y2);
}

Html horizontal_line(double y, const std::string& classes) {
  return fmt::format("<line class=\"{}\" x1=\"0\" x2=\"100%\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", classes, y, y);
}

Html stretched(double y, double height, const Html& content) {
  return fmt::format(
      "<svg class=\"shapes\" x=\"0\" y=\"{:g}\" width=\"100%\" height=\"{:g}\" viewBox=\"0 0 {:g} {:g}\" "
      "preserveAspectRatio=\"none\">{}</svg>",
      y, height, kWidth, height, content);
}

Html placed(double share, double y, const Html& shape) {
  return fmt::format("<svg class=\"placed\" x=\"{}\" y=\"{:g}\" overflow=\"visible\">{}</svg>", percent(share), y,
                     shape);
}

Html svg(double height, const std::string& classes, const Html& content) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"{}\" width=\"100%\" height=\"{:g}\" aria-hidden=\"true\" "
      "focusable=\"false\">{}</svg>",
      classes, height, content);
}

std::string anchor_at(double share, double edge) {
  return share < edge ? "start" : share > 1 - edge ? "end" : "middle";
}

}  // namespace trainopt::report
