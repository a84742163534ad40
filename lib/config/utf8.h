#pragma once

#include <cstddef>
#include <string_view>

namespace trainopt {

/// Length of the UTF-8 sequence at the start of `bytes`, which is not empty; 0 if it is not valid (overlong, surrogate,
/// too large, cut).
size_t utf8_length(std::string_view bytes);

}  // namespace trainopt
