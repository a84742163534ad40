// The number of micro-batches in a step, from the three keys that determine it.
#pragma once

#include "recipe/validate.h"

#include <variant>

namespace trainopt {

/// Micro-batches per step on each rank, or how data.global_batch_size contradicts the other keys.
std::variant<int64_t, RecipeProblem> accumulation(const Recipe& recipe, int64_t ranks);

}  // namespace trainopt
