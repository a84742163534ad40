// The run directory: chooses and creates it, and watches that it stays where it is.
#pragma once

#include "base/clock.h"
#include "base/files/held_folder.h"
#include "recipe/recipe.h"
#include "run/report.h"

#include <filesystem>
#include <optional>

namespace trainopt {

/// A run directory, and how the run uses it.
struct RunFolder {
  std::filesystem::path path;
  bool continues = false;                     ///< an earlier run, or this one before a restart, has written to it
  bool own = false;                           ///< what it resumes from is one of its own checkpoints
  bool resumes = false;                       ///< from `from` or, if null, from the newest checkpoint, if there is one
  std::optional<std::filesystem::path> from;  ///< the checkpoint that checkpoint.resume names
};

/// Whether the checkpoint is one of this run directory, whatever names and links lead to either.
bool is_checkpoint_of(const std::filesystem::path& run_dir, const std::filesystem::path& checkpoint);

inline std::filesystem::path checkpoints_in(const std::filesystem::path& run_dir) { return run_dir / "checkpoints"; }

/// The folder that the recipe asks for: a new one or, with checkpoint.resume, an existing one. Resuming from a
/// checkpoint of another run directory creates a new one. `restarted`: the launcher has started the ranks again, so the
/// run goes on where its earlier attempts were. Throws UserError.
RunFolder choose_run_directory(const Recipe& recipe, bool restarted);

/// Throws UserError if the folder, which was to be a new run's, has been written to.
void require_unused(const std::filesystem::path& folder);

/// Creates `<output_dir>/<name>-<date>-<time>` (with -2 … if taken), or run_dir as given, which must be empty or not
/// exist. Throws UserError: recipe if run_dir is not empty, storage if it cannot be created.
std::filesystem::path make_run_directory(const Recipe& recipe);

// A run directory may be renamed or removed while its run writes to it, and another run may take its name.

class FolderWatch {
 public:
  explicit FolderWatch(const HeldFolder& folder, std::filesystem::path run_dir)
      : folder_(folder), run_dir_(std::move(run_dir)) {}

  /// Looks once a second where the directory's name leads. Says it once if the directory was renamed: the run goes on
  /// in it. Asks the run to stop if the name leads elsewhere. Throws UserError(storage) if the directory was removed.
  void look();
  /// The run's end if the name leads elsewhere now: whoever waits for the run's results there would find another's.
  std::optional<RunEnd> corrected(const RunEnd& end) const;

 private:
  const HeldFolder& folder_;
  std::filesystem::path run_dir_;
  Clock::time_point looked_at_ = Clock::now();
  bool said_ = false;
};

}  // namespace trainopt
