// trainopt compare RECIPE --each KEY=a,b,c: several arms in one rotation.
#pragma once

#include "app/arguments.h"
#include "app/gate.h"
#include "app/measure_options.h"
#include "compare/baseline.h"

#include <filesystem>
#include <string>
#include <vector>

namespace trainopt {

/// How the result of a comparison is printed, what --fail-on makes of it, and where it is written.
struct CompareOutput {
  bool json = false, markdown = false;
  std::string run_dir;  ///< empty: a new folder
  Gate gate = {};

  ResultForm form() const { return json ? ResultForm::json : markdown ? ResultForm::markdown : ResultForm::text; }
};

struct EachArguments {
  Sources sources;                  ///< one recipe and its overrides
  std::string each;                 ///< "KEY=a,b,c"
  std::vector<std::string> faults;  ///< injected into the last arm
  bool own_processes = false, with_numbers = true;
};

/// Measures, prints and writes; returns the exit code. Throws UserError for a mistake in the arguments before anything
/// is created, and the failure of an arm after its results are printed and written.
int compare_each(const EachArguments& arguments, const MeasureOptions& measure, const CompareOutput& output,
                 const Environment& environment, const OutputOptions& console);

/// Prints a stored result of compare_each(), judged again. Returns the exit code.
int show_rotation(const std::filesystem::path& folder, const CompareOutput& output, bool color);

/// Shared by all comparisons: the lines of progress and the signals of this process.
Observer observer_of(const OutputOptions& console, Explain explain);
/// Shared by all comparisons, after the result is printed and written: says where it is, and throws the failure that
/// ended it, if any. Returns the exit code: that of a signal or `code`, which the gate gave.
int end_comparison(const std::filesystem::path& folder, const CompareOutput& output, const std::string& failure,
                   ExitCode failure_code, int code);

}  // namespace trainopt
