// Numerics as JSON.
#pragma once

#include "base/json.h"
#include "compare/numbers/numerics.h"

namespace trainopt {

Json to_json(const Numerics& numerics);
/// The inverse of to_json(); also reads the earlier format without tensors. Throws Json::exception.
Numerics numerics_from(const Json& json);

}  // namespace trainopt
