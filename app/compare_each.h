// trainopt compare RECIPE --each KEY=a,b,c: several arms in one rotation.
#pragma once

#include "app/arguments.h"
#include "app/compare_output.h"
#include "app/measure_options.h"

#include <filesystem>
#include <string>
#include <vector>

namespace trainopt {

struct EachArguments {
  Sources sources;                  ///< one recipe and its overrides
  std::string each;                 ///< "KEY=a,b,c"
  std::vector<std::string> faults;  ///< injected into the last arm
  bool own_processes = false, with_numbers = true, with_noise_floor = true;
};

/// Measures, prints and writes; returns the exit code. Throws UserError for a mistake in the arguments before anything
/// is created, and the failure of an arm after its results are printed and written.
int compare_each(const EachArguments& arguments, const MeasureOptions& measure, const CompareOutput& output,
                 const Environment& environment, const OutputOptions& console);

/// Prints a stored result of compare_each(), judged again. Returns the exit code.
int show_rotation(const std::filesystem::path& folder, const CompareOutput& output, bool color);

}  // namespace trainopt
