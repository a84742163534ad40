// The checks of a recipe's data and of what it is evaluated on.
#pragma once

#include "recipe/validate.h"

#include <set>
#include <string>
#include <vector>

namespace trainopt {

/// Whether the data set is in files, which determine its size.
constexpr bool reads_files(DatasetKind kind) {
  return kind == DatasetKind::cifar10 || kind == DatasetKind::image_folder || is_text(kind);
}

/// Adds the problems of `data` and `evaluation`. `changed`: full names of the keys that differ from their defaults.
void check_data(const Recipe& recipe, const std::set<std::string>& changed, std::vector<RecipeProblem>& problems);

}  // namespace trainopt
