// The checks of a recipe's data and of what it is evaluated on.
#pragma once

#include "recipe/validate.h"

#include <set>
#include <string>
#include <vector>

namespace trainopt {

/// Adds the problems of `data` and `evaluation`. `changed`: full names of the keys that differ from their defaults.
void check_data(const Recipe& recipe, const std::set<std::string>& changed, std::vector<RecipeProblem>& problems);

}  // namespace trainopt
