// The ordered list: Recipe → Plan.
#pragma once

#include "recipe/recipe.h"
#include "train/plan.h"

#include <set>
#include <string>

namespace trainopt {

/// Names of switches to leave out although the recipe turns them on.
using Without = std::set<std::string>;

/// Throws UserError for what this machine cannot do at all, and for every switch without effect here if recipe.strict.
Plan make_plan(const Recipe& recipe, const Machine& machine, const RankPosition& position = {},
               const Without& without = {});

}  // namespace trainopt
