// One rank's part of `trainopt run`: join the ranks, plan, claim the run directory, train, report.
#pragma once

#include "comm/launch/launch_environment.h"
#include "debugging/inject.h"
#include "recipe/recipe_io.h"
#include "run/environment.h"
#include "run/job_member.h"

#include <filesystem>
#include <functional>
#include <vector>

namespace trainopt {

/// A training that was not stopped, and whose memory is free again.
struct EndedRun {
  JobMember& member;
  const Machine& machine;
  const std::filesystem::path& run_dir;
};

struct SessionOptions {
  std::vector<Injection> injections;
  OutputOptions output;
  std::function<int(const EndedRun&)> then = {};  ///< on every rank; returns the exit code; may be empty
};

/// Returns the exit code. With a single rank, a failure is thrown; with several, the rank reports it and ends the
/// process with the exit code of the whole job.
int run_session(const Launch& launch, const LoadedRecipe& loaded, const SessionOptions& options,
                const Environment& environment);

}  // namespace trainopt
