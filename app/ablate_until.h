// trainopt ablate RECIPE --until target: what each switch that changes the mathematics is worth for the time to
// train.target, within the full recipe.
#pragma once

#include "app/arguments.h"
#include "app/compare_output.h"
#include "app/until_result.h"

namespace trainopt {

/// Runs the recipe, and the recipe without each of those switches, to its target in processes of their own, in turn,
/// with the same seeds; prints and writes the result. All intervals together hold at `level`. Returns the exit code.
/// Throws UserError for a mistake in the arguments before anything is created, and for the failure of a run other than
/// divergence.
int ablate_until(const Recipe& recipe, int64_t seeds, double level, double min_effect, const CompareOutput& output,
                 const OutputOptions& console);

}  // namespace trainopt
