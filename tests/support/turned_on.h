// A recipe with a switch of the catalogue turned on.
#pragma once

#include "config/load.h"
#include "data/transform_config.h"
#include "recipe/make_plan.h"
#include "recipe/recipe_io.h"
#include "support/temporary_folder.h"

namespace trainopt::test {

/// Like "key=value" on the command line, but without a check for contradictions between keys.
inline Recipe turned_on(const Recipe& recipe, const CatalogueEntry& entry) {
  const TemporaryFolder folder;
  const auto file = folder / "recipe.yaml";
  std::ofstream(file) << recipe_yaml(recipe);
  return load<Recipe>({.files = {file}, .overrides = {entry.key + "=" + entry.value}}).config;
}

}  // namespace trainopt::test
