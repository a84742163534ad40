// The plan before any optimization: device, model, data and run length are decided, and every slot is plain.
#pragma once

#include "recipe/recipe.h"
#include "train/plan.h"

namespace trainopt {

/// Opens the data set to learn its size; allocates nothing on the device. Throws UserError.
/// `stages`: into which a pipeline will divide the model; the ranks that then remain for each stage share the data.
Plan plain_plan(const Recipe& recipe, const Machine& machine, const RankPosition& position = {}, int64_t stages = 1);

}  // namespace trainopt
