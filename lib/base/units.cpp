#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace trainopt {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};
constexpr std::array<Unit, 10> kByteUnits{{{"TiB", 0x1p40},
                                           {"GiB", 0x1p30},
                                           {"MiB", 0x1p20},
                                           {"KiB", 0x1p10},
                                           {"TB", 1e12},
                                           {"GB", 1e9},
                                           {"MB", 1e6},
                                           {"kB", 1e3},
                                           {"KB", 1e3},
                                           {"B", 1}}};
constexpr std::array<Unit, 5> kTimeUnits{{{"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}}};

template <size_t N>
std::optional<double> parse_quantity(std::string_view text, const std::array<Unit, N>& units) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  if (text.empty()) return number;
  for (const auto& unit : units)
    if (text == unit.name) return number * unit.factor;
  return std::nullopt;
}

}  // namespace

std::optional<Bytes> parse_bytes(std::string_view text) {
  const auto count = parse_quantity(text, kByteUnits);
  if (!count || *count >= 0x1p62) return std::nullopt;
  return Bytes{static_cast<int64_t>(std::llround(*count))};
}

std::optional<Duration> parse_duration(std::string_view text) {
  const auto seconds = parse_quantity(text, kTimeUnits);
  if (!seconds) return std::nullopt;
  return Duration{*seconds};
}

std::optional<double> parse_share(std::string_view text) {
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  double share = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), share);
  if (percent) share /= 100;
  if (error != std::errc() || end != text.data() + text.size() || !(share > 0 && share < 1)) return std::nullopt;
  return share;
}

std::string to_text(Bytes bytes) {
  for (const auto& [name, power] : {std::pair{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}})
    if (bytes.count != 0 && bytes.count % (int64_t{1} << power) == 0)
      return fmt::format("{}{}", bytes.count >> power, name);
  return fmt::format("{}B", bytes.count);
}

std::string to_text(Duration duration) {
  for (const auto& unit : {kTimeUnits[3], kTimeUnits[2], kTimeUnits[1]}) {
    const double count = duration.seconds / unit.factor;
    if (count >= 1 && count == std::floor(count)) return fmt::format("{}{}", count, unit.name);
  }
  const double milliseconds = duration.seconds * 1e3;
  if (milliseconds == std::floor(milliseconds)) return fmt::format("{}ms", milliseconds);
  return fmt::format("{}s", duration.seconds);
}

std::string human_bytes(double bytes) {
  for (const auto& [name, size] : {std::pair{"TiB", 0x1p40}, {"GiB", 0x1p30}, {"MiB", 0x1p20}, {"KiB", 0x1p10}})
    if (std::abs(bytes) >= size) return fmt::format("{:.1f} {}", bytes / size, name);
  return fmt::format("{:.0f} B", bytes);
}

std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  for (int64_t at = static_cast<int64_t>(text.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3)
    text.insert(static_cast<size_t>(at), 1, ',');
  return text;
}

std::string counted(int64_t number, std::string_view noun, std::string_view plural) {
  return with_commas(number) + " " + std::string(noun) + (number == 1 ? std::string() : std::string(plural));
}

}  // namespace trainopt
