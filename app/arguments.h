// What every command shares: its recipe arguments and its output options.
#pragma once

#include "recipe/recipe.h"
#include "recipe/recipe_io.h"
#include "train/machine.h"

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace trainopt {

using Environment = std::map<std::string, std::string>;

/// The process's environment. Nothing else reads it.
Environment read_environment(char** variables);

/// CUDA_VISIBLE_DEVICES, for the message about GPUs that it hides.
std::optional<std::string> visible_devices(const Environment& environment);
/// This machine, as this process may use it, with the environment variables that its data needs.
Machine this_machine(const Environment& environment);

struct OutputOptions {
  bool quiet = false, no_color = false;
  bool launched = false;  ///< by a launcher: mpirun gives its ranks a terminal even if its own output is a file
  std::string log_level = "info";
};

/// "trainopt data bench".
std::string full_name(const CLI::App& command);
/// Command-line words that no option or command consumed.
std::vector<std::string> extra_arguments(const CLI::App& command);

/// RECIPE... [key=value ...] [--key=value ...], in any order.
struct RecipeArguments {
  std::vector<std::string> words;

  void add_to(CLI::App& command, const std::string& what = "RECIPE... [key=value ...]");
  /// Separates recipes from overrides. Throws UserError for a word that is neither an option, a recipe nor an override.
  Sources split(const CLI::App& command) const;
  /// --run-dir as an override; empty: none. Throws UserError.
  void add_run_dir(const std::string& run_dir);
  LoadedRecipe load(const CLI::App& command, std::optional<int64_t> ranks = 1) const;
};

/// --image and --label, which name columns of Parquet files.
void add_columns(CLI::App& command, ParquetConfig& columns);

/// For commands that run as one process: throws UserError if a launcher started several ranks. A launcher is never
/// ignored.
void refuse_several_ranks(const Environment& environment, const std::string& command);

/// The folder of the recipes that pip installed with this program; null if it was not installed so.
std::optional<std::filesystem::path> carried_recipes();

/// Whether standard output is a terminal on which a person may see colours and a progress line.
bool colored_output(const OutputOptions& output);

/// Prints one JSON object on standard output.
void print_json(const Json& json);

}  // namespace trainopt
