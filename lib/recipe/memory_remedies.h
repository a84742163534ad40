// Whether a plan's memory fits and, if not, what would make it fit.
#pragma once

#include "recipe/recipe.h"
#include "train/plan.h"

namespace trainopt {

/// Forecasts the memory of `plan`, which was made from `recipe`. If it leaves too little free, forecasts changed plans
/// too: a smaller batch, accumulation, switches. Remedies are those that leave a tenth of the memory free, as overrides
/// for the command line.
MemoryForecast make_memory_forecast(const Recipe& recipe, const Plan& plan);

}  // namespace trainopt
