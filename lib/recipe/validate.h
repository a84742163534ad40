// Checks that involve several keys: contradictions between them.
#pragma once

#include "optimizations/info.h"
#include "recipe/recipe.h"

#include <optional>
#include <vector>

namespace trainopt {

/// Returns all problems at once. A key that this build or this data set would ignore is refused if it differs from its
/// default. `ranks`: the number of ranks that will train; null if not known yet, which skips the global batch's checks.
std::vector<RecipeProblem> validate(const Recipe& recipe, std::optional<int64_t> ranks = 1);

}  // namespace trainopt
