// trainopt run RECIPE...: trains.
#include "app/commands.h"
#include "app/run_session.h"
#include "app/shared_options.h"
#include "app/signals.h"
#include "comm/launch/launch_environment.h"
#include "train/debug/inject.h"

#include <CLI/CLI.hpp>

namespace trainopt {

Command add_run(CLI::App& app) {
  CLI::App* command = app.add_subcommand("run", "Train");
  const auto recipes = std::make_shared<RecipeArguments>();
  const auto run_dir = std::make_shared<std::string>();
  command->add_option("--run-dir", *run_dir, "Write to this run directory, new or empty unless the run resumes in it");
  const auto ceilings = std::make_shared<bool>(false);
  const auto faults = std::make_shared<std::vector<std::string>>();
  command
      ->add_option(
          "--inject", *faults,
          "Inject a fault to see how the run handles it: nan@12, gradient@12, oom@3, gpu@3, ecc@3, slow@4, "
          "hang@5, bit_flip@6, kill@7, straggle@20; with +, at every attempt of that step; with :1, only on rank 1; "
          "gpu and ecc need a program built for GPUs, but no GPU")
      ->type_name("FAULT@STEP[+][:RANK]")
      ->allow_extra_args(false)
      ->take_all();
  const auto measure = std::make_shared<MeasureOptions>();
  command->add_flag(
      "--ceilings", *ceilings,
      "After training, measure what the job would gain if loading, updates, logging or, with several ranks, "
      "communication cost nothing");
  for (CLI::Option* option : measure->add_to(*command, "3m")) option->needs("--ceilings");
  recipes->add_to(*command);
  return [=](const CommandContext& context) {
    const Launch launch = read_launch(context.environment);
    const OutputOptions output = of_rank(context).output;
    // Several ranks stop together, which they can only once they have met.
    launch.position.ranks == 1 ? handle_signals_at_start() : handle_signals();
    recipes->add_run_dir(*run_dir);
    if (*ceilings) measure->options(), measure->budget_s();  // reports mistakes before training
    std::vector<Injection> injections;
    for (const auto& text : *faults)
      if (const Injection one = parse_injection(text); launch.restarts.done == 0 || one.every_time)
        injections.push_back(one);
    const LoadedRecipe loaded = recipes->load(*command, launch.position.ranks);
    return run_session(
        launch, loaded,
        {.injections = injections, .ceilings = *ceilings ? std::optional(*measure) : std::nullopt, .output = output},
        context.environment);
  };
}

}  // namespace trainopt
