// Reads recipes from files and writes them as text: lib/config's reader applied to Recipe, plus the checks across keys.
#pragma once

#include "base/json.h"
#include "config/load.h"
#include "recipe/recipe.h"
#include "train/plan.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

struct LoadedRecipe {
  Recipe recipe;
  std::vector<std::string> notes;  ///< what the user should know about how sources were merged
  Origins origins = {};            ///< the keys that a source set
};

/// Throws RecipeErrors with all problems at once, including those of a job with `ranks` ranks; null: number not known.
LoadedRecipe load_recipe(const Sources& sources, std::optional<int64_t> ranks = 1);

/// Throws UserError(checkpoint) if a file that the model section names does not exist. A resumed run does not read it,
/// so load_recipe() does not check this.
void require_model_files(const Recipe& recipe);
/// Throws UserError(data) for a local path of data or evaluation.path that does not exist or fits nothing.
void require_data_files(const Recipe& recipe);

/// The resolved recipe; loading it gives the same values.
std::string recipe_yaml(const Recipe& recipe);
Json recipe_json(const Recipe& recipe);
/// Every key with its default, and its meaning as a comment; a valid recipe.
std::string documented_recipe();
Json recipe_schema();
/// The full key of a switch by its name in plans: "data.num_workers" for num_workers, "optimizations.<name>" for an
/// optimization of that section; a full key is returned as it is. Throws UserError with a suggestion for other names.
std::string key_of_switch(const std::string& name);
/// The key here that a word of another trainer, or a misspelt key, probably means.
struct KeyMeant {
  std::string path;        ///< "optimizer.lr" for lr, "average.name: ema" for ema; empty: none
  std::string note;        ///< such as "in steps"
  std::string text;        ///< without a path: why there is no such key, in parentheses; empty: nothing is known
  bool is_switch = false;  ///< it takes true
  bool is_list = false;
};
KeyMeant key_meant(const std::string& word);
/// Every key of a recipe.
std::vector<OptionHelp> recipe_options();
/// A table of keys, with their types, defaults, bounds and meanings.
std::string help_text(const std::vector<OptionHelp>& options);

// A recipe with overrides, and what becomes of it here.

using Words = std::vector<std::string>;  ///< overrides as on the command line, "data.num_workers=2"

/// The text of a recipe with these changes in it (config/edit.h), whatever they make of it.
std::optional<std::string> edited_recipe(const std::string& text, const Words& changes,
                                         const std::map<std::string, std::string>& comments);
/// "data.num_workers=2 data.prefetch_factor=4"
std::string text_of(const Words& words);
/// nullopt if the overrides contradict the recipe, for this number of ranks.
std::optional<Recipe> with_words(const Recipe& recipe, const Words& words, int64_t ranks);
/// nullopt also if this machine refuses the changed recipe.
std::optional<Plan> plan_with(const Recipe& recipe, const Words& words, const Machine& machine,
                              const RankPosition& position);

}  // namespace trainopt
