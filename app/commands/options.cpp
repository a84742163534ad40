// trainopt options [section|key|words]: lists keys with their types, defaults, bounds and meanings.
#include "app/commands.h"
#include "app/words/by_name.h"
#include "base/print.h"
#include "config/leads.h"
#include "config/tree.h"

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include <set>

namespace trainopt {
namespace {

/// What articles call so, with its keys and others with these words.
std::string rows_text(const std::vector<KnownAs>& rows, const std::string& wanted, const std::vector<OptionHelp>& all) {
  std::string text;
  std::vector<OptionHelp> options;
  std::set<std::string> known;
  for (const KnownAs& row : rows) {
    text += fmt::format("{}: {}\n", fmt::join(row.names, ", "), row.here);
    for (const std::string& key : row.keys)
      for (const OptionHelp& option : options_under(all, key))
        if (known.insert(option.path).second) options.push_back(option);
  }
  for (const OptionHelp& option : options_with_words(all, wanted))
    if (known.insert(option.path).second) options.push_back(option);
  return options.empty() ? text : text + "\n" + help_text(options);
}

/// A key or section; else what articles or other trainers call so; else keys with these words.
std::string found_text(const std::string& wanted) {
  const auto all = recipe_options();
  for (const std::string& key : {wanted, folded(wanted)})
    if (const auto options = options_under(all, key); !options.empty()) return help_text(options);
  if (const auto rows = known_as(wanted); !rows.empty()) return rows_text(rows, wanted, all);
  if (const auto options = options_with_words(all, wanted); !options.empty()) return help_text(options);
  const size_t dot = std::min(wanted.rfind('.'), wanted.size());
  const std::string section = wanted.substr(0, dot == wanted.size() ? 0 : dot);
  const Lead* lead = lead_of_key(section, section.empty() ? wanted : wanted.substr(dot + 1));
  const bool is_meant = lead != nullptr && (section.empty() || lead->theirs.find('.') != std::string::npos);
  if (is_meant) {
    if (lead->paths.empty()) throw UserError(fmt::format("{}: no equivalent: {}", display_text(wanted), lead->note));
    std::vector<OptionHelp> options;
    for (const std::string& path : lead->paths)
      for (const OptionHelp& option : options_under(all, path.substr(0, path.find(": ")))) options.push_back(option);
    if (!options.empty()) return help_text(options);
  }
  const std::string near = nearest_name(all, wanted);
  throw UserError(fmt::format(
      "nothing here is called {}{}; trainopt options lists every key, and app/guide/by-name.md what articles call them",
      display_text(wanted), near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near)));
}

}  // namespace

Command add_options(CLI::App& app) {
  CLI::App* command = app.add_subcommand("options", "List every recipe key: type, default, bounds, meaning");
  const auto wanted = std::make_shared<std::vector<std::string>>();
  const auto yaml = std::make_shared<bool>(false), schema = std::make_shared<bool>(false);
  auto* of_keys =
      command->add_option("key", *wanted,
                          "A section or a key, such as data or data.batch_size; or words to search for, such as mixed "
                          "precision");
  auto* as_yaml = command->add_flag("--yaml", *yaml, "Print a complete, runnable recipe with the meanings as comments");
  auto* as_schema = command->add_flag("--schema", *schema, "Print a JSON Schema for editors");
  of_keys->excludes(as_yaml)->excludes(as_schema);
  as_yaml->excludes(as_schema);
  return [=](const CommandContext&) {
    if (*schema) {
      print_json(recipe_schema());
    } else if (*yaml) {
      print_text(documented_recipe());
    } else {
      print_text(wanted->empty() ? help_text(recipe_options())
                                 : found_text(fmt::format("{}", fmt::join(*wanted, " "))));
    }
    return 0;
  };
}

}  // namespace trainopt
