// A comparison as JSON: result.json in its folder, and what --json prints.
#pragma once

#include "base/json.h"
#include "compare/comparison.h"

namespace trainopt {

Json to_json(const NoiseFloor& noise);
/// null: there is none.
std::optional<NoiseFloor> noise_from(const Json& json);
Json to_json(const std::optional<CarryOver>& carry_over);
Json to_json(const ArmResult& arm);
/// A and B give {verdict, ratio, interval: [low, high], blocks, numerics, arms: {a, b}, …}, several arms {fastest,
/// each: {key, values}, arms: […], pairs: [{a, b, ratio, interval, verdict, …}], rounds, …}. `with_samples`: includes
/// every turn under "samples".
Json to_json(const Comparison& comparison, bool with_samples);

/// The inverse of to_json(…, true), for both layouts. Verdicts are recomputed from the samples. Throws UserError(data)
/// naming what is missing or inconsistent.
Comparison comparison_from(const Json& json);

}  // namespace trainopt
