// The checks of a recipe's learning-rate schedule.
#pragma once

#include "recipe/validate.h"

#include <vector>

namespace trainopt {

/// Adds a problem for a lowest rate above the highest one, with which a decay would raise the rate. `optimizer`: with
/// the rate that is used.
void check_lowest_rate(const SchedulerConfig& scheduler, const OptimizerConfig& optimizer,
                       std::vector<RecipeProblem>& problems);

/// Adds the problems of `scheduler`. Two are known only to the plan: whether the phases of a schedule fit into its
/// length, which files determine, and with optimizer.lr_scaling check_lowest_rate(), because the job's ranks determine
/// the rate.
void check_schedule(const Recipe& recipe, std::vector<RecipeProblem>& problems);

}  // namespace trainopt
