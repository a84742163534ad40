// Chooses and creates the run directory.
#pragma once

#include "recipe/recipe.h"

#include <filesystem>
#include <optional>

namespace trainopt {

/// A run directory, and how the run uses it.
struct RunFolder {
  std::filesystem::path path;
  bool continues = false;                     ///< an earlier run has written to it
  std::optional<std::filesystem::path> from;  ///< the checkpoint that checkpoint.resume names; null for auto and none
};

/// The folder that the recipe asks for: a new one or, with checkpoint.resume, an existing one. Resuming from a
/// checkpoint of another run directory creates a new one. Throws UserError.
RunFolder choose_run_directory(const Recipe& recipe);

/// Creates `<output_dir>/<name>-<date>-<time>` (with -2 … if taken), or run_dir as given, which must be empty or not
/// exist. Throws UserError: recipe if run_dir is not empty, storage if it cannot be created.
std::filesystem::path make_run_directory(const Recipe& recipe);

}  // namespace trainopt
