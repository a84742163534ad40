// trainopt ablate RECIPE: measures each switch of a recipe, alone and removed from the full stack.
#include "app/commands.h"
#include "app/compare_output.h"
#include "app/shared_options.h"
#include "app/until.h"
#include "base/files/files.h"
#include "base/log.h"
#include "base/print.h"
#include "compare/bundle.h"
#include "compare/output/ablation_report.h"
#include "compare/session.h"
#include "run/directory.h"
#include "run/report_page.h"
#include "run/run_plan.h"
#include "run/signals.h"
#include "run/version.h"

#include <CLI/CLI.hpp>

#include <cstdio>

namespace trainopt {
namespace {

struct AblateArguments {
  RecipeArguments recipes;
  MeasureOptions measure;
  UntilOptions until;
  std::vector<std::string> only;
  std::string run_dir;
  bool json = false, markdown = false;
};

void write_results(const std::filesystem::path& folder, const Ablation& result) {
  write_file(folder / "result.json", json_text(to_json(result), 1) + "\n");
  write_file(folder / "report.md", ablation_markdown(result));
  write_file(folder / "switches.csv", ablation_csv(result));
  write_file(folder / "environment.json", json_text(measured_environment({kBuild.version, kBuild.commit}), 2) + "\n");
}

/// Rank 0 alone runs this.
int ablate_recipe(Recipe recipe, AblationRequest request, const AblateArguments& arguments, const OutputOptions& output,
                  ArmFactory& factory) {
  request.until = arguments.measure.end();
  request.command = this_command(output, {"--budget", "--run-dir"});
  recipe.name = "ablate-" + recipe.name;
  recipe.run_dir = arguments.run_dir.empty() ? std::nullopt : std::optional(arguments.run_dir);
  request.folder = std::filesystem::absolute(make_run_directory(recipe));
  const Ablation result = [&] {
    Status status(output, arguments.measure.limit_s());
    return ablate(request, factory, observer_of(status, explain_plainly));
  }();
  if (arguments.json) {
    print_json(to_json(result));
  } else {
    print_colored(arguments.markdown ? ablation_markdown(result) : ablation_text(result, text_style(output)));
    if (!arguments.markdown) print_out("\nresults are in {}\n", request.folder.string());
  }
  std::fflush(stdout);                    // a launcher may end this process soon after another rank has failed
  write_results(request.folder, result);  // last, because the disk may be full
  write_own_report(request.folder);
  say_again(output);
  return stop_signal() != 0 ? 128 + stop_signal() : 0;
}

int run_ablate(const CLI::App& command, const AblateArguments& arguments, const CommandContext& context) {
  handle_signals();
  if (arguments.until) {
    refuse_several_ranks(context.environment, "trainopt ablate --until");
    const auto options = arguments.measure.options();
    return ablate_until(arguments.recipes.load(command).recipe, arguments.until.seeds, options.level,
                        options.min_effect, {.json = arguments.json, .run_dir = arguments.run_dir}, context.output);
  }
  const Launch launch = read_launch(context.environment);
  if (arguments.measure.precision || arguments.measure.repeats == 1)
    throw UserError(
        "ablate does not support --precision, and --repeats must be at least 2: one pair of processes decides nothing");
  const Recipe recipe = arguments.recipes.load(command, launch.position.ranks).recipe;
  AblationRequest request{.sources = arguments.recipes.split(command),
                          .only = arguments.only,
                          .ranks = launch.position.ranks,
                          .folder = {},
                          .options = arguments.measure.options(),
                          .until = {}};
  request.options.warmup_steps = recipe.bench.warmup_steps;
  const MeasureJob job = measure_job(std::array{recipe});
  return run_measurement(launch, job, context.environment, [&](ArmFactory& factory, const Explain&) {
    warn_of_unused_profiler(std::array{recipe});
    warn_of_unused_gpu(recipe, this_machine(context.environment));
    return ablate_recipe(recipe, request, arguments, context.output, factory);
  });
}

}  // namespace

Command add_ablate(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("ablate", "Measure what each switch of a recipe gains alone and within the full stack");
  const auto arguments = std::make_shared<AblateArguments>();
  arguments->recipes.add_to(*command);
  command
      ->add_option("--only", arguments->only,
                   "Measure this switch and no other; can be given several times. Without it, every switch that the "
                   "recipe turns on but the batch size")
      ->type_name("SWITCH")
      ->allow_extra_args(false);
  arguments->measure.add_to(*command, "20m");
  command->add_option("--run-dir", arguments->run_dir, "Write the result to this folder, new or empty");
  command->add_flag("--json", arguments->json, "Print one JSON object");
  command->add_flag("--markdown", arguments->markdown, "Print a Markdown table");
  arguments->until.add_to(*command,
                          "Measure what the switches that change the mathematics, the schedule and the average are "
                          "worth for the time to train.target, in whole runs with several seeds");
  return [=](const CommandContext& context) { return run_ablate(*command, *arguments, of_rank(context)); };
}

}  // namespace trainopt
