// Checks that involve several keys: contradictions between them.
#pragma once

#include "optimizations/info.h"
#include "recipe/recipe.h"

#include <optional>
#include <vector>

namespace trainopt {

/// Returns all problems at once. A key that this build or this data set would ignore is refused if it differs from its
/// default. `ranks`: the number of ranks that will train; null if not known yet, which skips the global batch's checks.
std::vector<RecipeProblem> validate(const Recipe& recipe, std::optional<int64_t> ranks = 1);

/// Whether the model predicts text rather than classes. Of a model that a file determines, the data says so.
bool predicts_text(const Recipe& recipe);

// The checks of a recipe's learning-rate schedule.

/// Adds a problem for a lowest rate above the highest one, with which a decay would raise the rate. `optimizer`: with
/// the rate that is used.
void check_lowest_rate(const SchedulerConfig& scheduler, const OptimizerConfig& optimizer,
                       std::vector<RecipeProblem>& problems);

}  // namespace trainopt
