// The folder of a run.
#pragma once

#include "recipe/recipe.h"

#include <filesystem>

namespace trainopt {

/// Makes `<output_dir>/<name>-<date>-<time>` (with -2 … if taken), or exactly run_dir, which must be empty or not there.
/// Throws UserError: recipe if run_dir holds something, storage if it cannot be made.
std::filesystem::path make_run_directory(const Recipe& recipe);

}  // namespace trainopt
