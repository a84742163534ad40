#include "app/arguments.h"

#include "comm/launch_environment.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>

namespace trainopt {
namespace {

/// "data.batch_size=64": a dotted name before the first "=".
bool is_override(std::string_view word) {
  const size_t equals = word.find('=');
  return equals != std::string_view::npos && equals > 0 &&
         word.substr(0, equals).find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") ==
             std::string_view::npos;
}

}  // namespace

Environment read_environment(char** variables) {
  Environment environment;
  for (; *variables; ++variables) {
    const std::string_view entry(*variables);
    const size_t equals = entry.find('=');
    if (equals != std::string_view::npos) environment.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return environment;
}

void RecipeArguments::add_to(CLI::App& command, const std::string& what) {
  command.add_option("recipe", words, "Recipes, merged in this order, and overrides such as data.batch_size=64")
      ->type_name(what);
  command.allow_extras();  // --key=value; main() refuses them for other commands, load() what else is left over
}

std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent ? full_name(*parent) + " " + command.get_name() : command.get_name();
}

std::vector<std::string> leftovers(const CLI::App& command) {
  // CLI11 hands what it does not know to the outermost command, so that --quiet may stand anywhere.
  std::vector<std::string> all;
  for (const CLI::App* app = &command; app; app = app->get_parent())
    for (const auto& word : app->remaining()) all.push_back(word);
  return all;
}

Sources RecipeArguments::split(const CLI::App& command) const {
  Sources sources;
  std::vector<std::string> all = words;
  for (const auto& extra : leftovers(command)) {
    if (!extra.starts_with("--") || !is_override(std::string_view(extra).substr(2)))
      throw UserError(
          fmt::format("not expected here; overrides are written key=value, and {} --help lists the options: {}",
                      full_name(command), extra));
    all.push_back(extra);
  }
  for (const auto& word : all) {
    if (word.empty()) throw UserError("an empty word among the arguments is neither a recipe nor an override");
    if (word.starts_with("--") || is_override(word))
      sources.overrides.push_back(word);
    else
      sources.files.emplace_back(word);
  }
  return sources;
}

LoadedRecipe RecipeArguments::load(const CLI::App& command, std::optional<int64_t> ranks) const {
  const Sources sources = split(command);
  if (sources.files.empty())
    throw UserError(fmt::format("name a recipe: {} RECIPE [key=value ...]", full_name(command)));
  return load_recipe(sources, ranks);
}

void refuse_several_ranks(const Environment& environment, const std::string& command) {
  const Launch launch = read_launch(environment);
  if (launch.position.ranks > 1)
    throw UserError(fmt::format("{} is no job of several ranks, only trainopt run is; start it by itself: {}", command,
                                fmt::join(launch.variables, " ")));
}

bool colored_output(const OutputOptions& output) { return !output.no_color && ::isatty(STDOUT_FILENO) == 1; }

void print_json(const Json& json) {
  const std::string text = json.dump(2) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace trainopt
