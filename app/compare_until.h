// trainopt compare A B --until target: which of two recipes reaches train.target sooner, over several seeds.
#pragma once

#include "app/arguments.h"
#include "app/compare_output.h"
#include "recipe/recipe.h"

#include <cstdint>
#include <string>

namespace trainopt {

struct UntilArm {
  std::string name;  ///< as the user named it
  Recipe recipe;
};

struct UntilArguments {
  UntilArm a, b;
  int64_t seeds = 10;
  double level = 0.95, min_effect = 0.01;
};

/// Runs both recipes to their target in processes of their own, in turn, with the same seeds; prints and writes the
/// result. Returns the exit code. Throws UserError for a mistake in the arguments before anything is created, and the
/// failure of a run other than divergence.
int compare_until(const UntilArguments& arguments, const CompareOutput& output, const OutputOptions& console);

}  // namespace trainopt
