#include "recipe/recipe.h"

#include "data/transform_config.h"

namespace trainopt {

Recipe::Recipe() = default;
Recipe::Recipe(const Recipe&) = default;
Recipe::Recipe(Recipe&&) noexcept = default;
Recipe& Recipe::operator=(const Recipe&) = default;
Recipe& Recipe::operator=(Recipe&&) noexcept = default;
Recipe::~Recipe() = default;

template Outline outline_of(Recipe& config);

}  // namespace trainopt
