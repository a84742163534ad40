// The plan of a run for one rank's process.
#pragma once

#include "debugging/inject.h"
#include "run/environment.h"
#include "run/job_member.h"
#include "train/plan.h"

#include <vector>

namespace trainopt {

/// Warns if `device: auto` means the CPU although NVIDIA's driver is installed.
void warn_of_unused_gpu(const Recipe& recipe, const Machine& machine);

/// This machine; with several ranks, with only this rank's share of the cores.
Machine machine_of(const JobMember& member, const Environment& environment);

/// Adds the settings of this rank's process. Throws UserError for an environment that contradicts them.
void add_process_settings(Plan& plan, const Environment& environment);

/// Throws UserError for a recipe that cannot run here, for an environment that contradicts what the run sets, and
/// (memory) if a step on the CPU would need more memory than there is; on a GPU that is a warning.
Plan plan_run(const LoadedRecipe& loaded, const Machine& machine, const std::vector<Injection>& injections,
              const JobMember& member, const Environment& environment);

/// Every rank opens the data itself. Throws UserError(data) if it differs from rank 0's.
void require_same_data(const Plan& plan, JobMember& member);

}  // namespace trainopt
