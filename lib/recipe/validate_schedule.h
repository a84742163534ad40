// The checks of a recipe's learning-rate schedule.
#pragma once

#include "recipe/validate.h"

#include <vector>

namespace trainopt {

/// Adds the problems of `scheduler`. Whether the phases of a schedule fit into its length is known only to the plan,
/// because files determine the length.
void check_schedule(const Recipe& recipe, std::vector<RecipeProblem>& problems);

}  // namespace trainopt
