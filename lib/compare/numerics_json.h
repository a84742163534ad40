// Numerics as JSON has them.
#pragma once

#include "base/json.h"
#include "compare/numerics.h"

namespace trainopt {

Json to_json(const Numerics& numerics);
/// Of what to_json() gave, now or before there were tensors. Throws Json::exception.
Numerics numerics_from(const Json& json);

}  // namespace trainopt
