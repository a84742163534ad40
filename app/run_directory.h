// Chooses and creates the run directory.
#pragma once

#include "recipe/recipe.h"

#include <filesystem>
#include <optional>

namespace trainopt {

/// A run directory, and how the run uses it.
struct RunFolder {
  std::filesystem::path path;
  bool continues = false;                     ///< an earlier run, or this one before a restart, has written to it
  bool resumes = false;                       ///< from `from` or, if null, from the newest checkpoint, if there is one
  std::optional<std::filesystem::path> from;  ///< the checkpoint that checkpoint.resume names
};

bool is_inside(const std::filesystem::path& path, const std::filesystem::path& folder);

inline std::filesystem::path checkpoints_in(const std::filesystem::path& run_dir) { return run_dir / "checkpoints"; }

/// The folder that the recipe asks for: a new one or, with checkpoint.resume, an existing one. Resuming from a
/// checkpoint of another run directory creates a new one. `restarted`: the launcher has started the ranks again, so the
/// run goes on where its earlier attempts were. Throws UserError.
RunFolder choose_run_directory(const Recipe& recipe, bool restarted);

/// Creates `<output_dir>/<name>-<date>-<time>` (with -2 … if taken), or run_dir as given, which must be empty or not
/// exist. Throws UserError: recipe if run_dir is not empty, storage if it cannot be created.
std::filesystem::path make_run_directory(const Recipe& recipe);

}  // namespace trainopt
