// trainopt compare RECIPE --against FILE: a fresh measurement against a stored one.
#pragma once

#include "app/compare_each.h"

#include <filesystem>
#include <string>

namespace trainopt {

struct AgainstArguments {
  std::filesystem::path stored;
  std::string name;  ///< of the recipe
  Recipe recipe;
};

/// Measures the recipe, prints and writes the result. Returns the exit code. Throws UserError for a mistake in the
/// arguments before anything is created, and the failure of an arm after its results are printed and written.
int compare_against(const AgainstArguments& arguments, const MeasureOptions& measure, const CompareOutput& output,
                    const Environment& environment, const OutputOptions& console);

/// Prints a stored result of compare_against(), judged again. Returns the exit code.
int show_against(const std::filesystem::path& folder, const CompareOutput& output, bool color);

}  // namespace trainopt
