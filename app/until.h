// `compare --until target` and `ablate --until target`: their options, and what is printed and written.
#pragma once

#include "app/compare_output.h"
#include "compare/until.h"

#include <cstdint>
#include <filesystem>
#include <string>

namespace CLI {
class App;
}

namespace trainopt {

struct UntilOptions {
  std::string until;  ///< "target", or empty: not asked for
  int64_t seeds = 10;

  explicit operator bool() const { return !until.empty(); }
  /// Call after the command's other options, because it excludes those of measurements in turns. `help`: of --until.
  void add_to(CLI::App& command, const std::string& help);
};

/// Why --fail-on is refused.
inline constexpr const char* kOwnVerdict = "--until target has its own verdict; read it with --json";

/// Runs, prints and writes. Returns the exit code. Throws UserError for a mistake in the arguments before anything is
/// created, and the failure of a run other than divergence.
int compare_until(const UntilArguments& arguments, const CompareOutput& output, const OutputOptions& console);
int ablate_until(const Recipe& recipe, int64_t seeds, double level, double min_effect, const CompareOutput& output,
                 const OutputOptions& console);

/// Prints what one of them wrote to `folder`; returns the exit code.
int show_until(const std::filesystem::path& folder, const CompareOutput& output);

}  // namespace trainopt
