// trainopt completion SHELL: prints a script with which a shell completes commands, options, recipes and keys.
#include "app/commands.h"
#include "app/words/completion.h"
#include "base/print.h"

#include <CLI/CLI.hpp>

namespace trainopt {

Command add_completion(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "completion",
      "Print a script for a shell's completion of commands, options, recipes, and keys with their values");
  const auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "bash, zsh or fish")->required();
  return [=, &app](const CommandContext&) {
    print_text(completion_script(*shell, app, recipe_names()));
    return 0;
  };
}

}  // namespace trainopt
