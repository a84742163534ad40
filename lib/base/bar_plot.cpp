#include "base/bar_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace trainopt {

std::string bar_plot(const std::vector<double>& columns, double lowest, int64_t rows) {
  static constexpr std::array<std::string_view, 9> kEighths{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const double highest = *std::max_element(columns.begin(), columns.end());
  std::string text;
  for (int64_t row = rows - 1; row >= 0; --row) {
    text += row == rows - 1 ? fmt::format("{:>10.3g} ┤", highest)
            : row == 0      ? fmt::format("{:>10.3g} ┤", lowest)
                            : "           │";
    std::string line;
    size_t end = 0;  // the end of what is not blank
    for (const double value : columns) {
      const double eighths =
          highest > lowest ? (value - lowest) / (highest - lowest) * static_cast<double>(8 * rows) : 0;
      const auto filled = std::clamp<int64_t>(std::llround(eighths) - 8 * row, 0, 8);
      line += kEighths[static_cast<size_t>(filled)];
      if (filled > 0) end = line.size();
    }
    text += line.substr(0, end) + "\n";
  }
  return text;
}

}  // namespace trainopt
