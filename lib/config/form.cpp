#include "config/form.h"

#include "config/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace trainopt {
namespace {

/// The number or boolean in a plain scalar, or nullopt after adding a problem.
template <class T>
std::optional<T> read_plain(const Value& value, const Location& location,
                            std::optional<T> (*parse)(std::string_view, std::string*), const char* expected) {
  if (!value.is_scalar()) {
    location.problem(value, fmt::format("must be {}: {}", expected, display_text(value)));
    return std::nullopt;
  }
  std::string reason;
  auto parsed = parse(value.text, &reason);
  if (parsed && value.quoted) {
    reason = fmt::format("must be {}, without quotes", expected);
    parsed.reset();
  }
  if (!parsed) location.problem(value, fmt::format("{}: {}", reason, display_text(value)));
  return parsed;
}

/// The quantity with a unit in a scalar, or nullopt after adding a problem. Quotes are allowed because users write
/// "4 GiB".
template <class T>
std::optional<T> read_quantity(const Value& value, const Location& location,
                               std::optional<T> (*parse)(std::string_view), const char* expected) {
  auto parsed = value.is_scalar() ? parse(value.text) : std::nullopt;
  if (!parsed) location.problem(value, fmt::format("must be {}: {}", expected, display_text(value)));
  return parsed;
}

/// Adds minimum, exclusiveMaximum and so on.
Json with_bounds(Json schema, const Bounds& bounds) {
  const auto number = [](double x) {
    return std::abs(x) < 9e15 && x == std::floor(x) ? Json(static_cast<int64_t>(x)) : Json(x);
  };
  if (std::isfinite(bounds.low)) schema[bounds.low_included ? "minimum" : "exclusiveMinimum"] = number(bounds.low);
  if (std::isfinite(bounds.high)) schema[bounds.high_included ? "maximum" : "exclusiveMaximum"] = number(bounds.high);
  return schema;
}

/// False after adding a problem.
bool check_bounds(const Value& value, double number, const Location& location, std::string_view unit = "") {
  if (location.bounds.contains(number)) return true;
  location.problem(value, fmt::format("must be {}: {}", bounds_text(location.bounds, unit), display_text(value)));
  return false;
}

}  // namespace

std::string bounds_text(const Bounds& bounds, std::string_view unit) {
  const auto number = [&](double x) { return short_number_text(x) + std::string(unit); };
  if (std::isfinite(bounds.low) && std::isfinite(bounds.high) && bounds.low_included && bounds.high_included)
    return fmt::format("between {} and {}", number(bounds.low), number(bounds.high));
  std::string text;
  if (std::isfinite(bounds.low)) text = (bounds.low_included ? "at least " : "above ") + number(bounds.low);
  if (std::isfinite(bounds.high))
    text +=
        (text.empty() ? "" : " and ") + std::string(bounds.high_included ? "at most " : "below ") + number(bounds.high);
  return text;
}

std::string Form<bool>::type_text() { return "true | false"; }
Json Form<bool>::schema(const Bounds&) { return {{"type", "boolean"}}; }
std::optional<bool> Form<bool>::read(const Value& value, const Location& location) {
  return read_plain(value, location, parse_boolean, "true or false");
}
Value Form<bool>::write(const bool& value) { return plain(value ? "true" : "false"); }

std::string Form<int64_t>::type_text() { return "whole number"; }
Json Form<int64_t>::schema(const Bounds& bounds) { return with_bounds({{"type", "integer"}}, bounds); }
std::optional<int64_t> Form<int64_t>::read(const Value& value, const Location& location) {
  const auto number = read_plain(value, location, parse_integer, "a whole number");
  return number && check_bounds(value, static_cast<double>(*number), location) ? number : std::nullopt;
}
Value Form<int64_t>::write(const int64_t& value) { return plain(fmt::format("{}", value)); }

std::string Form<double>::type_text() { return "number"; }
Json Form<double>::schema(const Bounds& bounds) { return with_bounds({{"type", "number"}}, bounds); }
std::optional<double> Form<double>::read(const Value& value, const Location& location) {
  const auto number = read_plain(value, location, parse_number, "a number");
  if (number && std::abs(*number) > std::numeric_limits<float>::max()) {  // training computes in float32 at most
    location.problem(value,
                     fmt::format("must be a number that float32 can hold, at most 3.4e38: {}", display_text(value)));
    return std::nullopt;
  }
  return number && check_bounds(value, *number, location) ? number : std::nullopt;
}
Value Form<double>::write(const double& value) { return plain(number_text(value)); }

std::string Form<std::string>::type_text() { return "string"; }
Json Form<std::string>::schema(const Bounds&) { return {{"type", "string"}}; }
std::optional<std::string> Form<std::string>::read(const Value& value, const Location& location) {
  if (value.is_scalar()) return value.text;
  location.problem(value, "must be a string: " + display_text(value));
  return std::nullopt;
}
Value Form<std::string>::write(const std::string& value) { return quoted(value); }

std::string Form<Bytes>::type_text() { return "size (512MiB, 4GiB, bytes)"; }
Json Form<Bytes>::schema(const Bounds&) {
  return {{"type", Json::array({"string", "integer"})}, {"pattern", "^[0-9.]+ ?([TGMK]i?B|kB|B)?$"}};
}
std::optional<Bytes> Form<Bytes>::read(const Value& value, const Location& location) {
  const auto bytes = read_quantity(value, location, parse_bytes, "a size such as 512MiB or 4GiB");
  return bytes && check_bounds(value, static_cast<double>(bytes->count), location, " B") ? bytes : std::nullopt;
}
Value Form<Bytes>::write(const Bytes& value) { return plain(to_text(value)); }

std::string Form<Duration>::type_text() { return "time (100ms, 90s, 15m, 2h, seconds)"; }
Json Form<Duration>::schema(const Bounds&) {
  return {{"type", Json::array({"string", "number"})}, {"pattern", "^[0-9.]+ ?(ms|s|m|h|d)?$"}};
}
std::optional<Duration> Form<Duration>::read(const Value& value, const Location& location) {
  const auto duration = read_quantity(value, location, parse_duration, "a time such as 90s, 15m or 2h");
  return duration && check_bounds(value, duration->seconds, location, " s") ? duration : std::nullopt;
}
Value Form<Duration>::write(const Duration& value) {
  const std::string text = to_text(value);
  const auto back = parse_duration(text);  // multiplying by the unit can lose the last bit
  if (back && *back == value) return plain(text);
  std::array<char, 512> digits;  // durations have no exponent
  const auto end =
      std::to_chars(digits.data(), digits.data() + digits.size(), value.seconds, std::chars_format::fixed).ptr;
  return plain(std::string(digits.data(), end) + "s");
}

std::string joined(std::span<const std::string_view> words, std::string_view separator) {
  std::string text;
  for (const auto word : words) text += (text.empty() ? "" : std::string(separator)) + std::string(word);
  return text;
}

std::optional<size_t> read_word(const Value& value, const Location& location, std::span<const std::string_view> words,
                                std::span<const std::string_view> shown_words) {
  if (value.is_scalar())
    for (size_t i = 0; i < words.size(); ++i)
      if (value.text == words[i]) return i;
  // cifar100 is no mistyped cifar10, nor resnet152 a resnet18.
  const auto digits = [](std::string_view word) {
    std::string all;
    for (const char c : word)
      if (c >= '0' && c <= '9') all += c;
    return all;
  };
  std::string near = value.is_scalar() ? closest_match(value.text, words) : "";
  if (!near.empty() && digits(near) != digits(value.text)) near.clear();
  location.problem(value, fmt::format("must be one of {}: {}{}", joined(shown_words, ", "), display_text(value),
                                      near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near)));
  return std::nullopt;
}

bool check_list(const Value& value, const Location& location, int length, const std::string& type_text) {
  if (value.is_list() && (length < 0 || value.items.size() == static_cast<size_t>(length))) return true;
  const std::string what = value.is_list() ? fmt::format("a list of {}", value.items.size()) : display_text(value);
  location.problem(
      value,
      fmt::format("must be a {}: {}{}", type_text, what,
                  value.is_scalar() && length <= 1 ? fmt::format(" (write [{}])", display_text(value.text)) : ""));
  return false;
}

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
