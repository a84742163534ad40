// The folder of a run.
#pragma once

#include "recipe/recipe.h"

#include <filesystem>
#include <optional>

namespace trainopt {

/// What goes on in a run directory.
struct RunFolder {
  std::filesystem::path path;
  bool continues = false;                     ///< in one that a run has written to before
  std::optional<std::filesystem::path> from;  ///< the checkpoint that checkpoint.resume names; null for auto and none
};

/// The folder that the recipe asks for: a new one, or with checkpoint.resume one that is there already. A checkpoint of
/// another run directory begins a new one. Throws UserError.
RunFolder choose_run_directory(const Recipe& recipe);

/// Makes `<output_dir>/<name>-<date>-<time>` (with -2 … if taken), or exactly run_dir, which must be empty or not
/// there. Throws UserError: recipe if run_dir holds something, storage if it cannot be made.
std::filesystem::path make_run_directory(const Recipe& recipe);

}  // namespace trainopt
