#include "app/words/completion.h"

#include "base/error.h"
#include "recipe/recipe_io.h"

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include <algorithm>

namespace trainopt {
namespace embedded {
extern const std::string_view kCompletion, kCompletionBash, kCompletionZsh;  // completion.sh, completion.bash and so on
}  // namespace embedded

namespace {

/// What can follow a command: "data bench".
struct Following {
  std::string command, help;  ///< the program itself has an empty name
  std::vector<std::string> commands = {}, options = {};
  bool takes_recipes = false;
};

void collect(const CLI::App& app, const std::string& name, std::vector<Following>& all) {
  const size_t at = all.size();
  all.push_back({.command = name, .help = app.get_description()});
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& word : option->get_lnames()) all[at].options.push_back("--" + word);
    all[at].takes_recipes |= option->get_name() == "recipe";
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); })) {
    all[at].commands.push_back(command->get_name());
    collect(*command, name.empty() ? command->get_name() : name + " " + command->get_name(), all);
  }
}

/// The words that a key takes: those of "none | zero1 | zero2" and of "true | false | map".
std::vector<std::string> values_of(const std::string& type) {
  constexpr std::string_view kDivider = " | ";
  std::vector<std::string> values;
  if (type.starts_with("list of") || type.find(kDivider) == std::string::npos) return values;
  for (size_t begin = 0; begin < type.size();) {
    const size_t end = std::min(type.find(kDivider, begin), type.size());
    const std::string word = type.substr(begin, end - begin);
    const bool describes = word.find(' ') != std::string::npos || word == "map" || word == "string" || word == "number";
    if (!describes) values.push_back(word);
    begin = end + kDivider.size();
  }
  return values;
}

std::string in_line(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, " ")); }

/// "_trainopt_values() { case …; }" of these cases.
std::string shell_function(const std::string& name, const std::string& cases) {
  return fmt::format("_trainopt_{}() {{\n  case \"$1\" in\n{}  esac\n}}\n", name, cases);
}

/// Functions for bash and zsh that print what may follow a command, and the values of a key.
std::string shell_functions(const std::vector<Following>& all, const std::vector<std::string>& recipes) {
  std::string commands, options, keys, values, with_recipes;
  for (const Following& each : all) {
    if (!each.commands.empty())
      commands += fmt::format("    '{}') echo '{}' ;;\n", each.command, in_line(each.commands));
    options += fmt::format("    '{}') echo '{}' ;;\n", each.command, in_line(each.options));
    if (each.takes_recipes) with_recipes += fmt::format("{}'{}'", with_recipes.empty() ? "" : "|", each.command);
  }
  for (const OptionHelp& key : options_of<Recipe>()) {
    keys += " " + key.path + "=";
    std::vector<std::string> words = values_of(key.type);
    for (std::string& word : words) word.insert(0, key.path + "=");
    if (!words.empty()) values += fmt::format("    {}) echo '{}' ;;\n", key.path, in_line(words));
  }
  return shell_function("commands", commands) + shell_function("options", options) + shell_function("values", values) +
         shell_function("recipes_and_keys",
                        fmt::format("    {}) echo '{}' ;;\n", with_recipes, in_line(recipes) + keys)) +
         std::string(embedded::kCompletion);
}

/// The text in single quotes, as fish reads it.
std::string quoted_for_fish(std::string text) {
  for (size_t at = 0; (at = text.find_first_of("'\\", at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return "'" + text + "'";
}

/// The last word of a command, and the command before it: "bench" and "data".
std::pair<std::string, std::string> divided(const std::string& command) {
  const size_t space = command.rfind(' ');
  if (space == std::string::npos) return {command, ""};
  return {command.substr(space + 1), command.substr(0, space)};
}

/// fish filters all words by what is typed, so keys stand there alone and with each value.
std::string fish_script(const std::vector<Following>& all, const std::vector<std::string>& recipes) {
  std::string words = in_line(recipes);
  for (const OptionHelp& key : options_of<Recipe>()) {
    words += " " + key.path + "=";
    for (const std::string& value : values_of(key.type)) words += fmt::format(" {}={}", key.path, value);
  }
  std::string text = fmt::format("set -g __trainopt_words {}\n", words);
  for (const Following& each : all) {
    const auto [name, outer] = divided(each.command);
    std::string here = "__fish_use_subcommand";
    if (!name.empty()) here = "__fish_seen_subcommand_from " + name;
    if (!outer.empty()) here = fmt::format("__fish_seen_subcommand_from {}; and {}", outer, here);
    const std::string begin = fmt::format("complete -c trainopt -n '{}'", here);
    for (const Following& next : all)
      if (const auto [own, parent] = divided(next.command); !own.empty() && parent == each.command)
        text += fmt::format("{} -a {} -d {}\n", begin, own, quoted_for_fish(next.help));
    for (const std::string& option : each.options) text += fmt::format("{} -l {}\n", begin, option.substr(2));
    if (each.takes_recipes) text += fmt::format("{} -a '$__trainopt_words'\n", begin);
  }
  return text;
}

}  // namespace

std::string completion_script(std::string_view shell, const CLI::App& program,
                              const std::vector<std::string>& recipes) {
  std::vector<Following> all;
  collect(program, "", all);
  const std::string head =
      fmt::format("# Completes the words after trainopt. Written by: trainopt completion {}\n", shell);
  if (shell == "bash") return head + shell_functions(all, recipes) + std::string(embedded::kCompletionBash);
  if (shell == "zsh")
    return "#compdef trainopt\n" + head + shell_functions(all, recipes) + std::string(embedded::kCompletionZsh);
  if (shell == "fish") return head + fish_script(all, recipes);
  throw UserError(fmt::format("completion is for bash, zsh and fish: {}", shell));
}

}  // namespace trainopt
