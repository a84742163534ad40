// trainopt options [section|key]: lists every key with its type, default, bounds and meaning.
#include "app/commands.h"

#include <CLI/CLI.hpp>
#include <cstdio>

namespace trainopt {

Command add_options(CLI::App& app) {
  CLI::App* command = app.add_subcommand("options", "List every recipe key: type, default, bounds, meaning");
  const auto wanted = std::make_shared<std::string>();
  const auto yaml = std::make_shared<bool>(false), schema = std::make_shared<bool>(false);
  command->add_option("key", *wanted, "A section or a key, such as data or data.batch_size");
  command->add_flag("--yaml", *yaml, "Print a complete, runnable recipe with the meanings as comments");
  command->add_flag("--schema", *schema, "Print a JSON Schema for editors");
  return [=](const CommandContext&) {
    if (*schema) {
      print_json(recipe_schema());
    } else if (*yaml) {
      std::fputs(documented_recipe().c_str(), stdout);
    } else {
      std::fputs(recipe_help(*wanted).c_str(), stdout);
    }
    return 0;
  };
}

}  // namespace trainopt
