// The plan before any optimization: device, model, data and run length are decided, and every slot is plain.
#pragma once

#include "recipe/recipe.h"
#include "train/plan.h"

namespace trainopt {

/// Opens the data set to learn its size; allocates nothing on the device. Throws UserError.
Plan plain_plan(const Recipe& recipe, const Machine& machine, const RankPosition& position = {});

}  // namespace trainopt
