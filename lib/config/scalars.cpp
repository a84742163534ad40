#include "config/scalars.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace trainopt {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void explain(std::string* reason, std::string_view text) {
  if (reason) *reason = text;
}

std::string_view without_sign(std::string_view text) {
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) text.remove_prefix(1);
  return text;
}

/// Some readers take 010 for eight, others for ten.
bool has_leading_zero(std::string_view digits) { return digits.size() > 1 && digits[0] == '0' && is_digit(digits[1]); }

/// std::from_chars accepts '-' but not '+'.
const char* number_begin(std::string_view text) { return text.data() + (text.starts_with('+') ? 1 : 0); }

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text, std::string* reason) {
  const std::string_view digits = without_sign(text);
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), is_digit)) {
    explain(reason, parse_number(text) ? "must be a whole number, written in digits only" : "must be a whole number");
    return std::nullopt;
  }
  if (has_leading_zero(digits)) {
    explain(reason, "must be a whole number without leading zeros");
    return std::nullopt;
  }
  int64_t value = 0;
  if (std::from_chars(number_begin(text), text.data() + text.size(), value).ec != std::errc()) {
    explain(reason, "must be a whole number that a signed 64-bit integer can hold");
    return std::nullopt;
  }
  return value;
}

std::optional<double> parse_number(std::string_view text, std::string* reason) {
  const std::string_view number = without_sign(text);
  explain(reason, "must be a number");
  if (number.empty() || !(is_digit(number[0]) || (number[0] == '.' && number.size() > 1 && is_digit(number[1])))) {
    if (number == ".inf" || number == ".nan" || number == "inf" || number == "nan" || number == ".NaN" ||
        number == ".Inf")
      explain(reason, "must be a finite number");
    return std::nullopt;
  }
  if (has_leading_zero(number)) {
    explain(reason, "must be a number without leading zeros");
    return std::nullopt;
  }
  double value = 0;
  const auto [end, error] =
      std::from_chars(number_begin(text), text.data() + text.size(), value, std::chars_format::general);
  if (error == std::errc::result_out_of_range) explain(reason, "must be a number that a double can hold");
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<bool> parse_boolean(std::string_view text, std::string* reason) {
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  std::string lower(text.substr(0, 8));
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
  explain(reason, kNotBoolean);
  for (const std::string_view word : {"yes", "on", "y", "1", "enabled"})
    if (lower == word) explain(reason, "must be true or false (write true)");
  for (const std::string_view word : {"no", "off", "n", "0", "none", "disabled"})
    if (lower == word) explain(reason, "must be true or false (write false)");
  return std::nullopt;
}

std::string number_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".n") == std::string::npos) {  // neither a point nor inf, nan
    const size_t exponent = text.find('e');
    text.insert(exponent == std::string::npos ? text.size() : exponent, ".0");
  }
  return text;
}

std::string short_number_text(double value) {
  if (std::abs(value) < 1e7 && value == std::floor(value)) return fmt::format("{:.0f}", value);
  std::string text = fmt::format("{:g}", value);  // 1e+15
  if (const size_t plus = text.find("e+"); plus != std::string::npos)
    text.erase(plus + 1, text[plus + 2] == '0' ? 2 : 1);
  if (parse_number(text) == value) return text;
  return value == std::floor(value) && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
}

}  // namespace trainopt
