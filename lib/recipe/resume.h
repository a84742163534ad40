// Which keys may differ between a checkpoint's recipe and the one that goes on from it.
#pragma once

#include "recipe/recipe.h"

#include <string>
#include <vector>

namespace trainopt {

/// Throws UserError(checkpoint) naming every key that may not change: model, seed, data, global batch and optimizer
/// decide what is being trained. Returns sentences about keys that may, but change the numbers from here on: switches,
/// schedule, clipping. Everything else (logging, workers, limits, checkpoints, how ranks share the work) changes
/// nothing and is not mentioned.
std::vector<std::string> check_resume(const Recipe& stored, const Recipe& now, int64_t stored_ranks = 1,
                                      int64_t ranks = 1);

}  // namespace trainopt
