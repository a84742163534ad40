// How many micro-batches make a step, from the three keys that have a say.
#pragma once

#include "recipe/validate.h"

#include <variant>

namespace trainopt {

/// Micro-batches of a step on each rank, or how data.global_batch_size contradicts the other keys.
std::variant<int64_t, RecipeProblem> accumulation(const Recipe& recipe, int64_t ranks);

}  // namespace trainopt
