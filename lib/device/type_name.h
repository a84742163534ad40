// Element types as recipes and receipts write them.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

namespace trainopt {

/// The recipe's spelling, such as "bfloat16", "float32" or "uint8"; libtorch's name for other types.
std::string type_name(c10::ScalarType type);

}  // namespace trainopt
