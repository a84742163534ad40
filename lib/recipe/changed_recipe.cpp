#include "recipe/changed_recipe.h"

#include "config/load.h"
#include "data/transform_config.h"
#include "recipe/make_plan.h"
#include "recipe/validate.h"

#include <fmt/ranges.h>

namespace trainopt {

std::string text_of(const Words& words) { return fmt::format("{}", fmt::join(words, " ")); }

std::optional<Recipe> with_words(const Recipe& recipe, const Words& words, int64_t ranks) {
  Recipe changed = recipe;
  const LoadedInto into = load_into(outline_of(changed), {.files = {}, .overrides = words});
  if (!into.problems.empty() || !validate(changed, ranks).empty()) return std::nullopt;
  return changed;
}

std::optional<Plan> plan_with(const Recipe& recipe, const Words& words, const Machine& machine,
                              const RankPosition& position) {
  const auto changed = with_words(recipe, words, position.ranks);
  if (!changed) return std::nullopt;
  try {
    return make_plan(*changed, machine, position);
  } catch (const UserError&) {  // named recovery: a change that this machine refuses is none
    return std::nullopt;
  }
}

}  // namespace trainopt
