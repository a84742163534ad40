// Strict parsing of numbers and booleans: 010, 0x10 and yes are errors, and so is 1e3 for a whole number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainopt {

/// Decimal digits with an optional sign. `reason`, if given, is set when nullopt is returned: "must be a whole number".
std::optional<int64_t> parse_integer(std::string_view text, std::string* reason = nullptr);
/// 1, -0.5, .5, 1., 1e-3; finite.
std::optional<double> parse_number(std::string_view text, std::string* reason = nullptr);
/// parse_boolean()'s reason for a word that means neither true nor false ("yes" and "off" get a hint).
inline constexpr const char* kNotBoolean = "must be true or false";
/// true and false (also True, TRUE, False, FALSE, as YAML 1.2 has them).
std::optional<bool> parse_boolean(std::string_view text, std::string* reason = nullptr);

/// The shortest text that parses back to the same double, with a decimal point so that YAML 1.1 readers also see a
/// float: "0.001", "1.0e-08".
std::string number_text(double value);
/// For messages: a whole number has no decimal point.
std::string short_number_text(double value);

}  // namespace trainopt
