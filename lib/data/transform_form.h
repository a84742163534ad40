// The recipe syntax of an item of `data.transforms`: a name, or a map from one name to its parameter or parameters.
#pragma once

#include "config/form.h"
#include "data/transform_config.h"

namespace trainopt {

template <>
struct Form<TransformConfig> {
  static std::string type_text();
  static Json schema(const Bounds& bounds);
  static std::optional<TransformConfig> read(const Value& value, const Location& location);
  static Value write(const TransformConfig& transform);
};

}  // namespace trainopt
