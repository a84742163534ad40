// A comparison as result.json of its folder holds it and as --json prints it.
#pragma once

#include "base/json.h"
#include "compare/comparison.h"

namespace trainopt {

Json to_json(const NoiseFloor& noise);
/// {verdict, ratio, interval: [low, high], blocks, numerics, …}. `with_samples`: every turn as well, under "samples".
Json to_json(const Comparison& comparison, bool with_samples);

/// From to_json(…, true); the verdict is judged again from the samples. Throws UserError(data) naming what is missing
/// or does not fit.
Comparison comparison_from(const Json& json);

}  // namespace trainopt
