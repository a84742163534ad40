// trainopt ablate RECIPE: measures each switch of a recipe, alone and removed from the full stack.
#include "app/commands.h"
#include "app/measure_options.h"
#include "app/run_directory.h"
#include "app/run_plan.h"
#include "app/signals.h"
#include "app/version.h"
#include "base/files.h"
#include "compare/ablation_json.h"
#include "compare/ablation_report.h"
#include "compare/bundle.h"

#include <CLI/CLI.hpp>
#include <spdlog/spdlog.h>

#include <cstdio>

namespace trainopt {
namespace {

struct AblateArguments {
  RecipeArguments recipes;
  MeasureOptions measure;
  std::string run_dir;
  bool json = false, markdown = false;
};

void write_results(const std::filesystem::path& folder, const Ablation& result) {
  write_file(folder / "result.json", json_text(to_json(result), 1) + "\n");
  write_file(folder / "report.md", ablation_markdown(result));
  write_file(folder / "switches.csv", ablation_csv(result));
  write_file(folder / "environment.json", json_text(measured_environment({kBuild.version, kBuild.commit}), 2) + "\n");
}

int run_ablate(const CLI::App& command, const AblateArguments& arguments, const CommandContext& context) {
  refuse_several_ranks(context.environment, "trainopt ablate");
  handle_signals();
  if (arguments.measure.precision || arguments.measure.repeats == 1)
    throw UserError(
        "ablate does not support --precision, and --repeats must be at least 2: one pair of processes decides nothing");
  Recipe recipe = arguments.recipes.load(command).recipe;
  AblationRequest request{.sources = arguments.recipes.split(command),
                          .folder = {},
                          .options = arguments.measure.options(),
                          .until = arguments.measure.end()};
  request.options.warmup_steps = recipe.bench.warmup_steps;
  recipe.name = "ablate-" + recipe.name;
  recipe.run_dir = arguments.run_dir.empty() ? std::nullopt : std::optional(arguments.run_dir);
  request.folder = std::filesystem::absolute(make_run_directory(recipe));
  const Observer observer{.report =
                              [&](const std::string& line) {
                                if (!context.output.quiet) spdlog::info("{}", line);
                              },
                          .stop = &stop_signal()};
  const Machine machine = detect_machine(visible_devices(context.environment));
  warn_of_unused_gpu(recipe, machine);
  LocalArms factory(machine);
  const Ablation result = ablate(request, factory, observer);
  if (arguments.json) {
    print_json(to_json(result));
  } else {
    std::fputs((arguments.markdown ? ablation_markdown(result) : ablation_text(result, colored_output(context.output)))
                   .c_str(),
               stdout);
    if (!arguments.markdown) std::printf("\nresults are in %s\n", request.folder.c_str());
  }
  write_results(request.folder, result);  // last, because the disk may be full
  return stop_signal() != 0 ? 128 + stop_signal() : 0;
}

}  // namespace

Command add_ablate(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("ablate", "Measure what each switch of a recipe gains alone and within the full stack");
  const auto arguments = std::make_shared<AblateArguments>();
  arguments->recipes.add_to(*command);
  arguments->measure.add_to(*command, "20m");
  command->add_option("--run-dir", arguments->run_dir, "Write the result to this folder, new or empty");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->add_flag("--markdown", arguments->markdown, "Print a Markdown table");
  return [=](const CommandContext& context) { return run_ablate(*command, *arguments, context); };
}

}  // namespace trainopt
