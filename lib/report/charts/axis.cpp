#include "report/charts/axis.h"

#include "report/charts/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace trainopt::report {
namespace {

constexpr double kLargest = 1e300;  // beyond it, differences overflow

std::string superscript(int exponent) {
  static constexpr const char* kDigits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string out = exponent < 0 ? "⁻" : "";
  for (const char digit : std::to_string(std::abs(exponent))) out += kDigits[digit - '0'];
  return out;
}

/// `value` with a fixed number of decimals, separators between thousands, and a true minus sign.
std::string fixed(double value, int decimals) {
  std::string digits = fmt::format("{:.{}f}", std::abs(value), decimals);
  const bool zero = digits.find_first_not_of("0.") == std::string::npos;
  const size_t point = std::min(digits.find('.'), digits.size());
  for (size_t i = point; i > 3; i -= 3) digits.insert(i - 3, ",");
  return (value < 0 && !zero ? "−" : "") + digits;
}

int exponent_of(double value) { return static_cast<int>(std::floor(std::log10(std::abs(value)))); }

std::string trimmed(std::string digits) {
  if (digits.find('.') == std::string::npos) return digits;
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.back() == '.') digits.pop_back();
  return digits;
}

double round_step(double wanted) {
  const double power = std::pow(10, std::floor(std::log10(wanted)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= wanted * 0.999) return factor * power;
  return 10 * power;
}

std::string tick_text(double at, double step, double largest) {
  const int exponent = largest > 0 ? exponent_of(largest * 1.0000001) : 0;
  const int step_exponent = static_cast<int>(std::floor(std::log10(step) + 1e-9));
  if (exponent < 6 && exponent >= -4) return fixed(at, std::max(0, -step_exponent));
  if (at == 0) return "0";
  return trimmed(fixed(at / std::pow(10, exponent), std::max(0, exponent - step_exponent))) + "×10" +
         superscript(exponent);
}

}  // namespace

double rounded(double value, int digits) {
  return std::isfinite(value) && value != 0 ? std::strtod(fmt::format("{:.{}e}", value, digits - 1).c_str(), nullptr)
                                            : value;
}

std::string number_text(double value, int digits) {
  if (!std::isfinite(value)) return "–";
  value = rounded(value, digits);
  if (value == 0) return "0";
  const int exponent = exponent_of(value);
  if (exponent < digits && exponent >= -4) return trimmed(fixed(value, std::max(0, digits - 1 - exponent)));
  std::string text = fmt::format("{:.{}e}", value, digits - 1);
  const size_t e = text.find('e');
  const int power = std::stoi(text.substr(e + 1));
  text = trimmed(text.substr(value < 0 ? 1 : 0, e - (value < 0 ? 1 : 0)));
  return (value < 0 ? "−" : "") + text + "×10" + superscript(power);
}

double Range::share(double value) const {
  const double share = span() > 0 ? (value - low) / span() : 0.5;
  return std::isfinite(share) ? std::clamp(share, 0.0, 1.0) : 0.5;
}

Range padded(double low, double high, bool from_zero, std::optional<double> top) {
  if (!(low <= high)) low = 0, high = from_zero || top ? 0 : 1;
  low = std::clamp(low, -kLargest, kLargest);
  high = std::clamp(high, -kLargest, kLargest);
  if (from_zero) low = std::min(low, 0.0), high = std::max(high, 0.0);
  const double size = std::max(std::abs(low), std::abs(high));
  double margin = 0.05 * (high - low);
  if (high - low < size * 1e-5) margin = size * 0.05;
  if (size == 0) margin = 1;
  const bool rests_on_zero = from_zero || (low >= 0 && low < margin);
  Range range{low >= 0 && rests_on_zero ? 0 : low - margin, high <= 0 && from_zero && low < 0 ? 0 : high + margin};
  if (top) range.high = *top;
  if (!(range.low < range.high)) range.low = range.high - 1;
  return range;
}

std::vector<Tick> ticks(const Range& range, int wanted, bool whole) {
  double step = round_step(range.span() / std::max(1, wanted));
  if (whole) step = std::max(1.0, step);
  const double begin = std::ceil(range.low / step - 1e-9), end = std::floor(range.high / step + 1e-9);
  std::vector<Tick> out;
  if (!std::isfinite(begin) || !std::isfinite(end) || end - begin > 100) return out;
  const double largest = std::max(std::abs(begin), std::abs(end)) * step;
  for (double i = begin; i <= end; ++i) {
    const double at = i == 0 ? 0 : i * step;
    out.push_back({at, tick_text(at, step, largest)});
    if (i + 1 == i) break;
  }
  return out;
}

std::vector<Tick> ratio_ticks(const Range& range, int wanted) {
  std::vector<Tick> out;
  if (range.high / range.low < 4) {
    for (auto& tick : ticks(range, wanted)) out.push_back({tick.at, tick.text + "×"});
    return out;
  }
  const bool only_decades = range.high / range.low > 100;
  for (int decade = exponent_of(range.low) - 1; decade <= exponent_of(range.high); ++decade)
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double at = rounded(factor * std::pow(10, decade));
      if (at < range.low || at > range.high || (only_decades && factor > 1)) continue;
      out.push_back({at, number_text(at) + "×"});
    }
  const size_t every = out.size() / static_cast<size_t>(std::max(1, wanted)) + 1;
  const auto one = std::find_if(out.begin(), out.end(), [](const Tick& tick) { return tick.at == 1; });
  const size_t phase = one == out.end() ? 0 : static_cast<size_t>(one - out.begin()) % every;
  std::vector<Tick> kept;
  for (size_t i = phase; i < out.size(); i += every) kept.push_back(out[i]);
  return kept;
}

size_t characters(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

double label_width(const std::vector<Tick>& ticks) {
  size_t longest = 0;
  for (const auto& tick : ticks) longest = std::max(longest, characters(tick.text));
  return 6.8 * static_cast<double>(longest);
}

namespace {

template <typename Value>
Json array_of(const std::vector<Column>& columns, int digits, Value value) {
  Json out = Json::array();
  for (const auto& column : columns) out.push_back(json_number(value(column), digits));
  return out;
}

/// Digits of steps and seconds: enough that neighbouring steps differ.
constexpr int kPlaceDigits = 12;

}  // namespace

Json json_number(double value, int digits) {
  if (!std::isfinite(value)) return nullptr;
  const double number = rounded(value, digits);
  if (number == std::floor(number) && std::abs(number) < 1e12) return static_cast<int64_t>(number);  // "12", not "12.0"
  return number;
}

Json place_json(const std::vector<Column>& columns) {
  Json out{{"first", array_of(columns, kPlaceDigits, [](const Column& c) { return c.first; })}};
  if (std::any_of(columns.begin(), columns.end(), [](const Column& c) { return c.first != c.last; }))
    out["last"] = array_of(columns, kPlaceDigits, [](const Column& c) { return c.last; });
  return out;
}

Json value_json(const std::vector<Column>& columns) {
  Json out{{"mean", array_of(columns, 6, [](const Column& c) { return c.mean(); })}};
  if (std::all_of(columns.begin(), columns.end(), [](const Column& c) { return c.low == c.high; })) return out;
  out["low"] = array_of(columns, 6, [](const Column& c) { return c.low; });
  out["high"] = array_of(columns, 6, [](const Column& c) { return c.high; });
  return out;
}

}  // namespace trainopt::report
