// Which keys may differ between a checkpoint's recipe and the recipe that resumes it.
#pragma once

#include "recipe/recipe.h"

#include <string>
#include <vector>

namespace trainopt {

/// Throws UserError(checkpoint) naming every key that changed but must not: model, seed, data, global batch and
/// optimizer define what is trained. Returns notes about changed keys that are allowed but affect the numbers from here
/// on: switches, learning rate, schedule, clipping. All other keys (logging, workers, limits, checkpoints, how ranks
/// share the work) may change without a note.
std::vector<std::string> check_resume(const Recipe& stored, const Recipe& now, int64_t stored_ranks = 1,
                                      int64_t ranks = 1);

}  // namespace trainopt
