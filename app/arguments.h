// What every command shares: its recipe arguments.
#pragma once

#include "recipe/recipe.h"
#include "recipe/recipe_io.h"
#include "run/environment.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace trainopt {

/// "trainopt data bench".
std::string full_name(const CLI::App& command);
/// All words after the program's name, as they were typed. The program sets them once.
std::vector<std::string>& typed_words();
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

/// Throws UserError: no option or command takes this word, and what was probably meant.
[[noreturn]] void refuse_argument(const CLI::App& command, const std::string& word);

/// The names of the recipes in configs/ here and of those installed with the program, such as "quickstart".
std::vector<std::string> recipe_names();
/// The folder of the recipes that pip installed with this program; null if it was not installed so.
std::optional<std::filesystem::path> carried_recipes();

/// Prints one JSON object on standard output.
void print_json(const Json& json);

}  // namespace trainopt
