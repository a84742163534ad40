// A rotation as JSON: result.json in its folder, and what --json prints.
#pragma once

#include "base/json.h"
#include "compare/rotation.h"

namespace trainopt {

/// {fastest, each: {key, values}, arms: […], pairs: [{a, b, ratio, interval, verdict, …}], rounds, …}. `with_samples`:
/// includes every turn under "samples".
Json to_json(const Rotation& rotation, bool with_samples);

/// Whether this is a rotation's result.json.
bool is_rotation(const Json& json);

/// The inverse of to_json(…, true); all results are recomputed from the samples. Throws UserError(data) naming what is
/// missing or inconsistent.
Rotation rotation_from(const Json& json);

}  // namespace trainopt
