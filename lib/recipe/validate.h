// The checks that no single option can make: contradictions between keys.
#pragma once

#include "optimizations/option_checks.h"
#include "recipe/recipe.h"

#include <optional>
#include <vector>

namespace trainopt {

/// All of them at once. A key that this build or this data set would ignore is refused where it differs from its
/// default. `ranks`: that will train; null where that is not known yet, and nothing is said about the global batch.
std::vector<RecipeProblem> validate(const Recipe& recipe, std::optional<int64_t> ranks = 1);

}  // namespace trainopt
