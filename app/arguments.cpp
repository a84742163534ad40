#include "app/arguments.h"

#include <cstdio>

namespace trainopt {
namespace {

/// "data.batch_size=64": a dotted name before the first "=".
bool is_override(std::string_view word) {
  const size_t equals = word.find('=');
  return equals != std::string_view::npos && equals > 0 &&
         word.substr(0, equals).find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") == std::string_view::npos;
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

void RecipeArguments::add_to(CLI::App& command) {
  command.add_option("recipe", words, "Recipes, merged in this order, and overrides such as data.batch_size=64")->type_name("RECIPE... [key=value ...]");
  command.allow_extras();   // --key=value; what else is left over is refused in load()
}

LoadedRecipe RecipeArguments::load(const CLI::App& command) const {
  Sources sources;
  std::vector<std::string> all = words;
  for (const auto& extra : command.remaining()) {
    if (!extra.starts_with("--") || !is_override(std::string_view(extra).substr(2)))
      throw UserError(fmt::format("unknown option; an override is written --key=value, and trainopt {} --help lists the options: {}", command.get_name(), extra));
    all.push_back(extra);
  }
  for (const auto& word : all) {
    if (word.starts_with("--") || is_override(word))
      sources.overrides.push_back(word);
    else
      sources.files.emplace_back(word);
  }
  if (sources.files.empty()) throw UserError(fmt::format("name a recipe: trainopt {} RECIPE [key=value ...]", command.get_name()));
  return load_recipe(sources);
}

void refuse_several_ranks(const Environment& environment) {
  for (const char* name : {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const auto found = environment.find(name);
    if (found != environment.end() && found->second != "1")
      throw UserError(fmt::format("this build trains on one rank and cannot join a launch of several yet: {}={}", name, found->second));
  }
}

void print_json(const Json& json) {
  const std::string text = json.dump(2) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace trainopt
