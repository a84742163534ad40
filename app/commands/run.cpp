// trainopt run RECIPE...: trains.
#include "app/commands.h"
#include "app/shared_options.h"
#include "base/files/files.h"
#include "base/print.h"
#include "comm/launch/launch_environment.h"
#include "compare/ceilings.h"
#include "compare/output/ablation_report.h"
#include "compare/session.h"
#include "debugging/inject.h"
#include "run/session.h"
#include "run/signals.h"

#include <CLI/CLI.hpp>

#include <cstdio>

namespace trainopt {
namespace {

/// Measures what the job would gain if one of its costs were zero. Returns the exit code.
int show_ceilings(const Recipe& recipe, int64_t ranks, ArmFactory& arms, const std::filesystem::path& run_dir,
                  const MeasureOptions& measure, const OutputOptions& output) {
  CompareOptions options = measure.options();
  options.warmup_steps = recipe.bench.warmup_steps;
  if (!output.quiet) print_out("\nmeasuring ceilings for at most {}\n", measure.budget);
  std::fflush(stdout);
  const auto ceilings =
      measure_ceilings(recipe, ranks, run_dir / "ceilings", options, measure.end(), arms, {.stop = &stop_signal()});
  write_file(run_dir / "ceilings.json",
             json_text(Json{{"schema_version", 1}, {"ceilings", ceilings_json(ceilings)}}, 2) + "\n");
  print_text(ceilings_text(ceilings));
  return stop_signal() != 0 ? 128 + stop_signal() : 0;
}

}  // namespace

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
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print one JSON object at the end: the run directory and its summary")
      ->excludes("--ceilings");
  recipes->add_to(*command);
  return [=](const CommandContext& context) {
    const Launch launch = read_launch(context.environment);
    OutputOptions output = of_rank(context).output;
    output.json = *json;
    output.quiet = output.quiet || *json;
    // Several ranks stop together, which they can only once they have met.
    launch.position.ranks == 1 ? handle_signals_at_start() : handle_signals();
    recipes->add_run_dir(*run_dir);
    if (*ceilings) measure->options(), measure->budget_s();  // reports mistakes before training
    std::vector<Injection> injections;
    for (const auto& text : *faults)
      if (const Injection one = parse_injection(text); launch.restarts.done == 0 || one.every_time)
        injections.push_back(one);
    const LoadedRecipe loaded = recipes->load(*command, launch.position.ranks);
    // Before there is a run directory. A run that goes on has the weights in its checkpoint.
    if (loaded.recipe.checkpoint.resume == "none" && launch.restarts.done == 0) require_model_files(loaded.recipe);
    const auto measure_ceilings_of = [&](const EndedRun& run) {
      return measure_with(run.member, run.machine, context.environment, [&](ArmFactory& arms, const Explain&) {
        return show_ceilings(loaded.recipe, launch.position.ranks, arms, run.run_dir, *measure, output);
      });
    };
    SessionOptions options{.injections = injections, .output = output};
    if (*ceilings) options.then = measure_ceilings_of;
    const int code = run_session(launch, loaded, options, context.environment);
    if (*json && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0))
      throw UserError("cannot write to standard output; the run directory has summary.json", ExitCode::storage);
    return code;
  };
}

}  // namespace trainopt
