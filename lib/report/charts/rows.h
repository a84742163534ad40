// The axis below and the grid behind charts made of rows.
#pragma once

#include "report/charts/frame.h"

#include <functional>

namespace trainopt::report {

inline constexpr double kRowHeight = 26;

using Share = std::function<double(double)>;  ///< from a value to its share of the width
/// One row: grid lines behind `content`.
Html row_svg(const std::vector<Tick>& ticks, const Share& share, const Html& content, double strong);
Html axis_svg(const std::vector<Tick>& ticks, const Share& share);

}  // namespace trainopt::report
