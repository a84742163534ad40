// The part of a printed plan that concerns memory.
#pragma once

#include "base/json.h"
#include "train/plan.h"

#include <string>

namespace trainopt {

// These read plan.memory, which must be set.

/// "9.3 GiB forecast at the peak (backward of layer1.0): activations 8.1 GiB, …; 12 % of the GPU's 80 GiB"
std::string forecast_text(const Plan& plan);
/// {forecast_bytes, capacity_bytes (null: not known), fits, at, parameters_bytes, …, units, remedies}
Json forecast_json(const MemoryForecast& forecast);
/// One sentence for a plan that does not fit, with the first remedy.
std::string why_it_does_not_fit(const Plan& plan);

}  // namespace trainopt
