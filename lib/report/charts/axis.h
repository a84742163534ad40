// Ranges, ticks at round numbers, and numbers as text.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trainopt::report {

/// At most `digits` significant digits, with separators: "12,345.6", "1.2×10⁻⁷", "−3"; "–" if it is not finite.
std::string number_text(double value, int digits = 6);
/// The nearest number with that many significant digits; non-finite numbers as they are.
double rounded(double value, int digits = 6);

struct Range {
  double low = 0, high = 1;
  double span() const { return high - low; }
  /// Where `value` lies in this range, within [0, 1].
  double share(double value) const;
};
/// What an axis shows of values in [low, high]: a little more, and never less than their fifth digit. NaN bounds stand
/// for no values: [0, 1].
Range padded(double low, double high, bool from_zero = false, std::optional<double> top = {});

struct Tick {
  double at;
  std::string text;
};
/// About `wanted` multiples of 1, 2 or 5 times a power of ten in the range. `whole`: only whole numbers.
std::vector<Tick> ticks(const Range& range, int wanted, bool whole = false);
/// Ratios around 1 for a logarithmic axis, 0 < low < high: "0.5×", "1×", "2×".
std::vector<Tick> ratio_ticks(const Range& range, int wanted);

/// About the pixels of the longest text at the size of axis labels (11 px).
double label_width(const std::vector<Tick>& ticks);
/// Number of characters, not bytes.
size_t characters(const std::string& text);

}  // namespace trainopt::report
