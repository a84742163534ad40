// The ordered list of optimizations, and its readers: Recipe → Plan, Recipe → problems, Recipe → unused switches, the
// catalogue and others.
#pragma once

#include "optimizations/info.h"
#include "recipe/recipe.h"
#include "train/plan.h"

#include <set>
#include <string>
#include <vector>

namespace trainopt {

/// Names of switches to exclude although the recipe turns them on.
using Without = std::set<std::string>;

/// Throws UserError if this machine cannot run the recipe and, with recipe.strict, for all switches without effect
/// here.
Plan make_plan(const Recipe& recipe, const Machine& machine, const RankPosition& position = {},
               const Without& without = {});

/// Contradictions between the optimizations that are on and the rest of the recipe.
std::vector<RecipeProblem> check_optimizations(const Recipe& recipe);

/// An optimization that the recipe leaves off and that would have an effect here.
struct UnusedSwitch {
  std::string change;  ///< "optimizations.<name>=true"
  std::string text;    ///< what the plan would say of it
};
/// The unused switches of the section `optimizations`, without those of exactness `new_math`. `plan` is the recipe's.
std::vector<UnusedSwitch> unused_switches(const Recipe& recipe, const Plan& plan);

/// Names of the switches with exactness `new_math` that are on.
std::vector<std::string> new_math_switches(const Recipe& recipe);

/// Whether `ablate` measures this switch only if it is named (Info::of_the_job).
bool is_of_the_job(const std::string& name);

struct CatalogueEntry {
  Info info;
  std::string key;    ///< the recipe's key: "data.num_workers"
  std::string value;  ///< turns it on in a plain recipe: "true", "1"
};
/// Every optimization, in the order in which they are applied.
std::vector<CatalogueEntry> catalogue();
/// The override that turns a switch off: "data.num_workers=null". Names as in key_of_switch(), which see for errors.
std::string switched_off(const std::string& name);

}  // namespace trainopt
