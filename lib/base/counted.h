// "1 thread", "2 threads", "10,000 samples".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trainopt {

std::string with_commas(int64_t number);

/// `noun` is singular; `plural` is appended unless `number` is 1.
std::string counted(int64_t number, std::string_view noun, std::string_view plural = "s");

}  // namespace trainopt
