// A plot of columns as text, for terminals.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainopt {

/// A bar for each column from `lowest` to its value, `rows` lines high. A line is divided into eighths. The vertical
/// axis, labelled with `lowest` and the highest value, takes 12 columns at the left. `columns`: at least one.
std::string bar_plot(const std::vector<double>& columns, double lowest, int64_t rows);

}  // namespace trainopt
