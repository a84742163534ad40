// Recipes from files and to text: the reader of lib/config, applied to Recipe, and the checks across keys.
#pragma once

#include "base/json.h"
#include "config/load.h"
#include "recipe/recipe.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt {

struct LoadedRecipe {
  Recipe recipe;
  std::vector<std::string> notes;  ///< what the user should know about the merging
};

/// Throws RecipeErrors with every problem of every kind, those of a job of `ranks` ranks among them; null: of any.
LoadedRecipe load_recipe(const Sources& sources, std::optional<int64_t> ranks = 1);

/// The resolved recipe; loads again to the same values.
std::string recipe_yaml(const Recipe& recipe);
Json recipe_json(const Recipe& recipe);
/// Every key with its default and its meaning as a comment; runs.
std::string documented_recipe();
Json recipe_schema();
/// The full key of a switch as plans name it: "data.num_workers" for num_workers, optimizations.<name> for an
/// optimization of that section; a full key stays. Throws UserError with a suggestion for a name that is neither.
std::string key_of_switch(const std::string& name);
/// A table of keys: all, those of a section, or one. Throws UserError for a name that is neither.
std::string recipe_help(const std::string& section_or_key);

}  // namespace trainopt
