// Element types as recipes and receipts write them.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

namespace trainopt {

/// As recipes write it: "bfloat16", "float32", "uint8"; libtorch's name for others.
std::string type_name(c10::ScalarType type);

}  // namespace trainopt
