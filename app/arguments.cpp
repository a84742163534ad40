#include "app/arguments.h"

#include "app/words/other_words.h"
#include "base/json.h"
#include "base/print.h"
#include "comm/launch/launch_environment.h"
#include "config/suggest.h"
#include "config/tree.h"

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

namespace trainopt {
namespace {

/// "data.batch_size=64": a dotted name before the first "=".
bool is_override(std::string_view word) {
  const size_t equals = word.find('=');
  return equals != std::string_view::npos && equals > 0 && !word.starts_with('-') &&
         word.substr(0, equals).find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == std::string_view::npos;
}

/// Whether the folder is one that commands write: a run, a comparison, a tuning.
bool is_result(const std::filesystem::path& folder) {
  constexpr std::array kFiles{"recipe.yaml", "summary.json", "result.json", "tuning.json", "checkpoints"};
  std::error_code error;
  return std::any_of(kFiles.begin(), kFiles.end(),
                     [&](const char* file) { return std::filesystem::exists(folder / file, error); });
}

/// The recipe that a word names: a file, or one of configs/ by its name, with or without the folder and .yaml. Recipes
/// in the current folder go before those installed with the program. What is none of these is returned as it is.
std::filesystem::path recipe_file(const std::string& word) {
  std::error_code error;
  const std::filesystem::path path(word);
  if (path.is_absolute() ||
      (std::filesystem::is_directory(path, error) ? is_result(path) : std::filesystem::exists(path, error)))
    return path;
  const std::string name = word.starts_with("configs/") ? word.substr(std::string_view("configs/").size()) : word;
  if (name.starts_with("..")) return path;
  for (const auto& folder : {std::optional<std::filesystem::path>("configs"), carried_recipes()})
    for (const std::string& file : {name, name + ".yaml"})
      if (folder && std::filesystem::is_regular_file(*folder / file, error)) return *folder / file;
  return path;
}

/// Throws UserError if there is no such file, with what was probably meant.
void require_recipe(const std::filesystem::path& file, const std::string& word) {
  std::error_code error;
  if (std::filesystem::exists(file, error)) return;
  if (const std::string lead = lead_of_recipe(word, typed_words()); !lead.empty())
    throw UserError(fmt::format("neither a recipe nor an override{}: {}", lead, word));
  const auto names = recipe_names();
  const std::vector<std::string_view> views(names.begin(), names.end());
  std::string near = closest_match(file.stem().string(), views);
  if (near == file.stem().string()) near.clear();
  throw UserError(fmt::format("there is no such recipe{}: {}",
                              near.empty() ? "" : fmt::format("; did you mean '{}'?", near), word));
}

}  // namespace

void RecipeArguments::add_to(CLI::App& command, const std::string& what) {
  command.add_option("recipe", words, "Recipes, merged in the order given, and overrides such as data.batch_size=64")
      ->type_name(what);
  command.allow_extras();  // for --key=value; split() rejects any other extra
}

std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent ? full_name(*parent) + " " + command.get_name() : command.get_name();
}

std::vector<std::string> extra_arguments(const CLI::App& command) {
  // CLI11 passes words that it does not know up to the outermost command, which is what allows --quiet anywhere.
  std::vector<std::string> all;
  for (const CLI::App* app = &command; app; app = app->get_parent())
    for (const auto& word : app->remaining()) all.push_back(word);
  return all;
}

void refuse_argument(const CLI::App& command, const std::string& word) {
  const std::string lead = word.starts_with('-') ? lead_of_option(command, word, typed_words()) : "";
  throw UserError(fmt::format("unexpected argument{}: {}",
                              lead.empty() ? fmt::format("; see {} --help for the options", full_name(command)) : lead,
                              word));
}

std::vector<std::string>& typed_words() {
  static std::vector<std::string> words;
  return words;
}

Sources RecipeArguments::split(const CLI::App& command) const {
  Sources sources;
  if (const char* home = std::getenv("HOME")) sources.home = home;
  std::vector<std::string> all = words;
  for (const auto& extra : extra_arguments(command)) {
    if (!extra.starts_with("--") || !is_override(std::string_view(extra).substr(2))) refuse_argument(command, extra);
    all.push_back(extra);
  }
  for (const auto& word : all) {
    if (word.empty()) throw UserError("an empty argument is neither a recipe nor an override; remove it");
    if (word.starts_with("--") || is_override(word))
      sources.overrides.push_back(word);
    else {
      sources.files.push_back(recipe_file(word));
      require_recipe(sources.files.back(), word);
    }
  }
  return sources;
}

void RecipeArguments::add_run_dir(const std::string& run_dir) {
  if (run_dir.empty()) return;
  if (!is_utf8(run_dir)) throw UserError("--run-dir must be valid UTF-8, since a recipe contains it");
  words.push_back(fmt::format("run_dir={}", json_text(Json(run_dir))));  // quoted, so that any path is one YAML scalar
}

LoadedRecipe RecipeArguments::load(const CLI::App& command, std::optional<int64_t> ranks) const {
  const Sources sources = split(command);
  if (sources.files.empty())
    throw UserError(fmt::format("name a recipe: {} RECIPE [key=value ...]", full_name(command)));
  return load_recipe(sources, ranks);
}

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& folder : {std::optional<std::filesystem::path>("configs"), carried_recipes()})
    if (folder && std::filesystem::is_directory(*folder, error))
      for (const auto& entry : std::filesystem::directory_iterator(*folder, error))
        if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::optional<std::filesystem::path> carried_recipes() {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto folder = program.parent_path().parent_path() / "configs";
  return std::filesystem::is_directory(folder, error) ? std::optional(folder) : std::nullopt;
}

void add_columns(CLI::App& command, ParquetConfig& columns) {
  command.add_option("--image", columns.image, "Parquet: the column with the images, as data.parquet.image");
  command.add_option("--label", columns.label, "Parquet: the column with the labels, as data.parquet.label");
}

void refuse_several_ranks(const Environment& environment, const std::string& command) {
  const Launch launch = read_launch(environment);
  if (launch.position.ranks > 1)
    throw UserError(fmt::format("{} runs as one process; start it without a launcher: {}", command,
                                fmt::join(launch.variables, " ")));
}

void print_json(const Json& json) {
  print_json_text(json_text(json, 2) + "\n");
  std::fflush(stdout);
}

}  // namespace trainopt
