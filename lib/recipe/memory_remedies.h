// Whether a plan's memory fits and, if not, what would make it fit.
#pragma once

#include "recipe/recipe.h"
#include "recipe/recipe_io.h"
#include "train/plan.h"

#include <vector>

namespace trainopt {

/// Forecasts the memory of `plan`, which was made from `recipe`. If it leaves too little free, forecasts changed plans
/// too: a smaller batch, accumulation, switches. Remedies are those that leave a tenth of the memory free, as overrides
/// for the command line.
MemoryForecast make_memory_forecast(const Recipe& recipe, const Plan& plan);
/// Sets plan.memory. Where there is no forecast, a note says so.
void add_memory_forecast(const Recipe& recipe, Plan& plan);

// Changes of a recipe that may lower the memory of a step.

/// Every optimization of the step that is off (if it only works with another one, with that), and every way to shard
/// among the ranks. Each contradicts nothing in the recipe and changes it; most of them save nothing.
std::vector<Words> memory_switches(const Recipe& recipe, const Plan& plan);

/// Keeps the global batch, in `pieces` times as many micro-batches; empty if that does not divide the batch, or would
/// leave batch-norm with one sample.
Words in_more_micro_batches(const Recipe& recipe, const Plan& plan, int64_t pieces);

}  // namespace trainopt
