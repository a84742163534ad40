#pragma once

#include <cstddef>
#include <string_view>

namespace trainopt {

/// Length of the UTF-8 sequence at the start of `bytes`, which must not be empty; 0 if it is invalid (overlong,
/// surrogate, too large, truncated).
size_t utf8_length(std::string_view bytes);
/// Whether all of `bytes` is UTF-8.
bool is_utf8(std::string_view bytes);

}  // namespace trainopt
