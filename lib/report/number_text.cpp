#include "report/number_text.h"

#include "base/units.h"

#include <fmt/format.h>

#include <cmath>

namespace trainopt::report {
namespace {

std::string not_a_number(double value) { return std::isnan(value) ? "NaN" : value > 0 ? "∞" : "−∞"; }

/// Keeps three significant digits below 1,000.
std::string three_digits(double value) {
  const double size = std::abs(value);
  if (size == 0) return "0";
  if (size >= 999.5) return size < 1e15 ? with_commas(std::llround(value)) : fmt::format("{:.3g}", value);
  if (size >= 99.95) return fmt::format("{:.0f}", value);
  if (size >= 9.995) return fmt::format("{:.1f}", value);
  if (size >= 0.9995) return fmt::format("{:.2f}", value);
  return fmt::format("{:.3g}", value);
}

}  // namespace

std::string rate_text(double per_second) {
  return std::isfinite(per_second) ? three_digits(per_second) : not_a_number(per_second);
}

std::string ms_text(double milliseconds) {
  if (!std::isfinite(milliseconds)) return not_a_number(milliseconds);
  return std::abs(milliseconds) >= 10'000 ? three_digits(milliseconds / 1e3) + " s"
                                          : three_digits(milliseconds) + " ms";
}

std::string seconds_text(double seconds) {
  if (!std::isfinite(seconds)) return not_a_number(seconds);
  if (seconds < 59.95) return fmt::format("{:.{}f} s", seconds, seconds < 1 ? 2 : 1);
  const int64_t whole = std::llround(seconds);
  return whole < 3600 ? fmt::format("{}m {:02}s", whole / 60, whole % 60)
                      : fmt::format("{}h {:02}m", whole / 3600, whole % 3600 / 60);
}

std::string percent_text(double percent) {
  if (!std::isfinite(percent)) return not_a_number(percent);
  return fmt::format("{:.{}f} %", percent, std::abs(percent) < 9.95 ? 1 : 0);
}

std::string bytes_text(double bytes) { return std::isfinite(bytes) ? human_bytes(bytes) : not_a_number(bytes); }
std::string mib_text(double mib) { return bytes_text(mib * 0x1p20); }
std::string count_text(double count) {
  return std::isfinite(count) && std::abs(count) < 1e18 ? with_commas(std::llround(count)) : plain_text(count);
}
std::string plain_text(double value) {
  return std::isfinite(value) ? fmt::format("{:.4g}", value) : not_a_number(value);
}
std::string gain_text(double ratio) {
  const double percent = 100 * (ratio - 1);
  return std::isfinite(percent) ? fmt::format("{:+.1f} %", percent) : not_a_number(percent);
}

std::string flops_text(double flops) {
  constexpr std::string_view kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  for (; std::abs(flops) >= 999.5 && prefix + 1 < std::size(kPrefixes); ++prefix) flops /= 1000;
  return fmt::format("{} {}FLOP", three_digits(flops), kPrefixes[prefix]);
}

std::string flops_per_s_text(double rate) { return flops_text(rate) + "/s"; }

std::string shortened(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;  // not within a character
  return std::string(text.substr(0, most)) + "…";
}

std::string value_text(const Json& value) {
  if (value.is_null()) return std::string(kMissing);
  return shortened(value.is_string() ? value.get<std::string>() : json_text(value));
}

}  // namespace trainopt::report
