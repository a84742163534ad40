// The ordered list of optimizations, and its three readers: Recipe → Plan, Recipe → problems, and the catalogue.
#pragma once

#include "optimizations/info.h"
#include "optimizations/option_checks.h"
#include "recipe/recipe.h"
#include "train/plan.h"

#include <set>
#include <string>
#include <vector>

namespace trainopt {

/// Names of switches to leave out although the recipe turns them on.
using Without = std::set<std::string>;

/// Throws UserError for what this machine cannot do at all, and for every switch without effect here if recipe.strict.
Plan make_plan(const Recipe& recipe, const Machine& machine, const RankPosition& position = {},
               const Without& without = {});

/// What the optimizations that are on contradict in the rest of the recipe.
std::vector<RecipeProblem> check_optimizations(const Recipe& recipe);

struct CatalogueEntry {
  Info info;
  std::string key;    ///< of the recipe: "data.num_workers"
  std::string value;  ///< that turns it on in a plain recipe: "true", "1"
};
/// Every optimization, in the order in which they are applied.
std::vector<CatalogueEntry> catalogue();

}  // namespace trainopt
