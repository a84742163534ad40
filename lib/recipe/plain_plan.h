// The plan before any optimization: device, model, data and run length are decided, and every slot is plain.
#pragma once

#include "recipe/recipe.h"
#include "recipe/validate.h"
#include "train/plan.h"

#include <variant>

namespace trainopt {

/// Opens the data set to learn its size; allocates nothing on the device. Throws UserError.
/// `stages`: into which a pipeline will divide the model; the ranks that then remain for each stage share the data.
Plan plain_plan(const Recipe& recipe, const Machine& machine, const RankPosition& position = {}, int64_t stages = 1);

// The number of micro-batches in a step, from the three keys that determine it.

/// How many of a job's ranks share the data: with a pipeline, those that hold the same stage. One rank alone holds all
/// stages, and a number that is no multiple of the stages is left as it is, for plain_plan() to refuse.
int64_t ranks_that_share_data(const Recipe& recipe, int64_t ranks);

/// Micro-batches per step on each rank, or how data.global_batch_size contradicts the other keys.
/// `ranks`: those that share the data.
std::variant<int64_t, RecipeProblem> accumulation(const Recipe& recipe, int64_t ranks);

}  // namespace trainopt
