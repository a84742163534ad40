// trainopt check RECIPE...: validates recipes.
#include "app/commands.h"
#include "base/print.h"

#include <CLI/CLI.hpp>

namespace trainopt {

Command add_check(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("check", "Validate recipes and stop; exit 0, 2, 3 if data is missing, or 4 if weights are");
  const auto recipes = std::make_shared<RecipeArguments>();
  recipes->add_to(*command);
  return [command, recipes](const CommandContext& context) {
    const auto loaded = recipes->load(*command);
    require_model_files(loaded.recipe);
    require_data_files(loaded.recipe);
    if (!context.output.quiet) {
      for (const auto& note : loaded.notes) print_out("note: {}\n", note);
      print_text("ok\n");
    }
    return 0;
  };
}

}  // namespace trainopt
