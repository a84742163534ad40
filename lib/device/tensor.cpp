#include "device/tensor.h"

namespace trainopt {

std::string type_name(c10::ScalarType type) {
  switch (type) {
    case c10::kFloat:
      return "float32";
    case c10::kDouble:
      return "float64";
    case c10::kHalf:
      return "float16";
    case c10::kBFloat16:
      return "bfloat16";
    case c10::kFloat8_e4m3fn:
      return "float8_e4m3fn";
    case c10::kFloat8_e5m2:
      return "float8_e5m2";
    case c10::kByte:
      return "uint8";
    default:
      return c10::toString(type);
  }
}

}  // namespace trainopt
