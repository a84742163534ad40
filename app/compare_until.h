// trainopt compare A B --until target: which of two recipes reaches train.target sooner, over several seeds.
#pragma once

#include "app/arguments.h"
#include "app/compare_output.h"
#include "app/until_result.h"

#include <cstdint>

namespace trainopt {

/// Why --fail-on is refused.
inline constexpr const char* kOwnVerdict = "--until target has its own verdict; read it with --json";

struct UntilArguments {
  NamedRecipe a, b;
  int64_t seeds = 10;
  double level = 0.95, min_effect = 0.01;
};

/// Runs both recipes to their target in processes of their own, in turn, with the same seeds; prints and writes the
/// result. Returns the exit code. Throws UserError for a mistake in the arguments before anything is created, and the
/// failure of a run other than divergence.
int compare_until(const UntilArguments& arguments, const CompareOutput& output, const OutputOptions& console);

/// Prints what compare_until() or ablate_until() wrote to `folder`; returns the exit code.
int show_until(const std::filesystem::path& folder, const CompareOutput& output);

}  // namespace trainopt
