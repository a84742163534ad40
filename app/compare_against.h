// `compare RECIPE --against FILE`: a fresh measurement against a stored one.
#pragma once

#include "app/commands.h"
#include "app/gate.h"
#include "app/measure_options.h"

#include <filesystem>
#include <string>

namespace trainopt {

struct AgainstArguments {
  std::filesystem::path stored;
  std::string name;  ///< of the recipe
  Recipe recipe;
  std::string run_dir;  ///< empty: chosen
  bool json = false, markdown = false;
};

/// Measures the recipe, prints and writes the result. Returns the exit code. Throws UserError.
int compare_against(const AgainstArguments& arguments, const MeasureOptions& measure, const Gate& gate,
                    const CommandContext& context);

/// Whether the folder holds a result of --against.
bool is_against_folder(const std::filesystem::path& folder);
/// Prints it, judged again. Returns the exit code. Throws UserError(data).
int show_against(const std::filesystem::path& folder, bool json, bool markdown, const Gate& gate, bool color);

}  // namespace trainopt
