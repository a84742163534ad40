// trainopt options [section|key|words]: lists keys with their types, defaults, bounds and meanings.
#include "app/commands.h"
#include "base/print.h"

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

namespace trainopt {

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
      print_text(recipe_help(fmt::format("{}", fmt::join(*wanted, " "))));
    }
    return 0;
  };
}

}  // namespace trainopt
