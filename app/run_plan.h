// The plan of a run, as it holds for one rank's process.
#pragma once

#include "app/arguments.h"
#include "app/job_member.h"
#include "train/inject.h"
#include "train/plan.h"

#include <vector>

namespace trainopt {

/// This machine, of which a rank of several has a share.
Machine machine_of(const JobMember& member);

/// Throws UserError for a recipe that cannot run here, and for an environment that contradicts what the run sets.
Plan plan_run(const LoadedRecipe& loaded, const Machine& machine, const std::vector<Injection>& injections,
              const JobMember& member, const Environment& environment);

/// Every rank opens the data by itself. Throws UserError(data) where it is not what rank 0 has.
void require_same_data(const Plan& plan, JobMember& member);

}  // namespace trainopt
