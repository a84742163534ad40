// Numbers as a page shows them: three or four digits, a unit, thin rules for what is missing.
#pragma once

#include "base/json.h"

#include <cstddef>
#include <string>
#include <string_view>

namespace trainopt::report {

inline constexpr std::string_view kMissing = "–";

std::string rate_text(double per_second);   ///< "1,243", "12.3", "0.52"
std::string ms_text(double milliseconds);   ///< "25.7 ms", "0.482 ms", "12.3 s"
std::string seconds_text(double seconds);   ///< "2.1 s", "1m 05s", "2h 05m"
std::string percent_text(double percent);   ///< "97 %", "0.3 %"
std::string bytes_text(double bytes);       ///< "11.3 GiB"
std::string mib_text(double mib);           ///< "11.3 GiB"
std::string count_text(double count);       ///< "1,234,567"
std::string plain_text(double value);       ///< four significant digits
std::string gain_text(double ratio);        ///< "+31.0 %" for 1.31
std::string flops_text(double flops);       ///< "277.7 MFLOP"
std::string flops_per_s_text(double rate);  ///< "277.7 MFLOP/s"
/// At most this many bytes, with … at the end of what is cut.
std::string shortened(std::string_view text, size_t most = 2000);
/// A JSON value as text: strings without quotes, null as kMissing; long ones are shortened.
std::string value_text(const Json& value);

}  // namespace trainopt::report
