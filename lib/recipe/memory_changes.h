// Changes of a recipe that may lower the memory of a step.
#pragma once

#include "recipe/changed_recipe.h"

#include <vector>

namespace trainopt {

/// Every optimization of the step that is off (if it only works with another one, with that), and every way to shard
/// among the ranks. Each contradicts nothing in the recipe and changes it; most of them save nothing.
std::vector<Words> memory_switches(const Recipe& recipe, const Plan& plan);

/// The same global batch in `pieces` times as many micro-batches; empty if that does not divide the batch, or would
/// leave batch-norm with one sample.
Words in_more_micro_batches(const Recipe& recipe, const Plan& plan, int64_t pieces);

/// The smallest micro-batch that the model accepts: batch-norm needs two samples.
int64_t smallest_micro_batch(const Plan& plan);

}  // namespace trainopt
