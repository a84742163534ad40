// A recipe with overrides, and what becomes of it here.
#pragma once

#include "recipe/recipe.h"
#include "train/plan.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt {

using Words = std::vector<std::string>;  ///< overrides as on the command line, "data.num_workers=2"

/// "data.num_workers=2 data.prefetch_factor=4"
std::string text_of(const Words& words);
/// nullopt if the overrides contradict the recipe, for this number of ranks.
std::optional<Recipe> with_words(const Recipe& recipe, const Words& words, int64_t ranks);
/// nullopt also if this machine refuses the changed recipe.
std::optional<Plan> plan_with(const Recipe& recipe, const Words& words, const Machine& machine,
                              const RankPosition& position);

}  // namespace trainopt
