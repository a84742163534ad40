// One rank's part of `trainopt run`: join the ranks, plan, claim the run directory, train, report.
#pragma once

#include "app/arguments.h"
#include "app/shared_options.h"
#include "comm/launch/launch_environment.h"
#include "train/debug/inject.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

namespace trainopt {

struct SessionOptions {
  std::vector<Injection> injections;
  std::optional<MeasureOptions> ceilings;  ///< to measure after the training
  OutputOptions output;
  /// Called on rank 0 after a training that was not stopped, with the run directory; may be empty.
  std::function<void(const std::filesystem::path& run_dir)> then = {};
};

/// Returns the exit code. With a single rank, a failure is thrown; with several, the rank reports it and ends the
/// process with the exit code of the whole job.
int run_session(const Launch& launch, const LoadedRecipe& loaded, const SessionOptions& options,
                const Environment& environment);

}  // namespace trainopt
