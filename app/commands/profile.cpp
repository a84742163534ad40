// trainopt profile RECIPE...: a short run with the profiler on, and what its trace shows.
#include "app/commands.h"
#include "app/run_session.h"
#include "app/signals.h"
#include "app/trace_options.h"
#include "base/files.h"
#include "base/json.h"
#include "comm/launch_environment.h"
#include "config/utf8.h"
#include "trace/analysis.h"
#include "train/profiler.h"

#include <CLI/CLI.hpp>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>

namespace trainopt {
namespace {

/// The first steps allocate memory and choose algorithms, and steps that are replayed have to be recorded first.
constexpr int64_t kSteadyAfter = 5;

/// A training just long enough for one recording, which does nothing but train.
void make_short(Recipe& recipe) {
  ProfilerConfig& profiler = recipe.profiler.options;
  recipe.profiler.on = true;
  profiler.repeat = 1;
  profiler.wait = std::max<int64_t>(profiler.wait, kSteadyAfter);
  profiler.record_shapes = profiler.with_flops = true;
  recipe.train.max_steps = profiled_steps(profiler);
  recipe.train.epochs.reset();
  recipe.train.max_time.reset();
  recipe.evaluation.every_n_steps.reset();
  recipe.evaluation.at_end = false;
  recipe.checkpoint = {.at_end = false};
  std::erase(recipe.logging.sinks, SinkKind::console);
  recipe.logging.progress = Progress::off;
}

/// The traces that rank 0 can read, by rank.
std::vector<std::filesystem::path> traces_in(const std::filesystem::path& run_dir, int64_t ranks, int64_t first_step) {
  std::vector<std::filesystem::path> found;
  for (int64_t rank = 0; rank < ranks; ++rank)
    if (auto path = run_dir / "trace" / fmt::format("rank{}-step{}.json.gz", rank, first_step);
        std::filesystem::exists(path))
      found.push_back(std::move(path));
  return found;
}

void show(const std::vector<std::filesystem::path>& traces, const std::filesystem::path& run_dir,
          const TraceOptions& options, bool as_json) {
  const trace::TraceAnalysis analysis = trace::analyse_traces(traces, options.analysis);
  write_file(run_dir / "profile.json", json_text(trace::analysis_json(analysis), 2) + "\n");
  write_file(run_dir / "operations.csv", trace::operations_csv(analysis));
  if (as_json) return print_json(trace::analysis_json(analysis, options.view));
  std::printf("%s\nwrote %s: profile.json, operations.csv, and in trace/ what https://ui.perfetto.dev opens\n",
              trace::analysis_text(analysis, options.view).c_str(), run_dir.c_str());
}

}  // namespace

Command add_profile(CLI::App& app) {
  CLI::App* command = app.add_subcommand("profile", "Profile a few steps and show where their time goes");
  const auto recipes = std::make_shared<RecipeArguments>();
  const auto run_dir = std::make_shared<std::string>();
  command->add_option("--run-dir", *run_dir, "Write to this run directory, which must be new or empty");
  const auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "Print one JSON object");
  const auto options = std::make_shared<TraceOptions>();
  options->add_to(*command);
  recipes->add_to(*command);
  return [=](const CommandContext& context) {
    const Launch launch = read_launch(context.environment);
    OutputOptions output = of_rank(context).output;
    handle_signals();
    LoadedRecipe loaded = recipes->load(*command, launch.position.ranks);
    if (!run_dir->empty()) {
      if (!is_utf8(*run_dir)) throw UserError("--run-dir must be valid UTF-8, since a recipe contains it");
      loaded.recipe.run_dir = *run_dir;
    }
    if (loaded.recipe.profiler.on && loaded.recipe.profiler.options.activities.empty())
      throw UserError("profiler.activities is empty, so there would be nothing to show");
    make_short(loaded.recipe);
    const ProfilerConfig& profiler = loaded.recipe.profiler.options;
    const int64_t first_step = profiler.wait + profiler.warmup + 1, last_step = first_step + profiler.active - 1;
    const std::string steps = first_step == last_step ? fmt::format("step {}", first_step)
                                                      : fmt::format("steps {} to {}", first_step, last_step);
    if (const auto step = options->analysis.step; step && (*step < first_step || *step > last_step))
      throw UserError(fmt::format("--step is not among the profiled ones, {}: {}", steps, *step));
    if (!output.quiet && launch.position.is_first()) spdlog::info("profiling {}", steps);
    output.quiet = true;
    return run_session(launch, loaded,
                       {.injections = {},
                        .ceilings = {},
                        .output = output,
                        .then =
                            [&](const std::filesystem::path& folder) {
                              show(traces_in(folder, launch.position.ranks, first_step), folder, *options, *as_json);
                            }},
                       context.environment);
  };
}

}  // namespace trainopt
