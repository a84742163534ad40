// An epoch's last batch, if the job could not compute with it.
#pragma once

#include "recipe/recipe.h"
#include "train/plan.h"

namespace trainopt {

/// Batch-norm divides by the variance of each channel over a rank's batch, or over all ranks' with sync_batch_norm. One
/// value has none: PyTorch raises "Expected more than 1 value per channel when training". A rank without a sample has
/// no mean, and a program may have been exported for batches of at least `least_batch` samples. Decides what becomes of
/// an epoch's last batch if that is so short, as train.short_batch says. Needs the plan's data, model and steps.
/// Returns whether the schedule of the data changed. Throws UserError if a batch remains that cannot be computed with.
bool fit_short_batch(Plan& plan, const Recipe& recipe, int64_t least_batch);

}  // namespace trainopt
