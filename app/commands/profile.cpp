// trainopt profile RECIPE...: a short run with the profiler on, and what its trace shows.
#include "app/commands.h"
#include "app/shared_options.h"
#include "base/files/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/print.h"
#include "base/units.h"
#include "comm/launch/launch_environment.h"
#include "metrics/summary.h"
#include "recipe/make_plan.h"
#include "recipe/plan_machine.h"
#include "roofline/attained.h"
#include "run/report_page.h"
#include "run/session.h"
#include "run/signals.h"
#include "run/stored_peaks.h"
#include "trace/analysis.h"
#include "train/observe/profiler.h"

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include <algorithm>

namespace trainopt {
namespace {

/// The first steps allocate memory and choose algorithms, and steps that are replayed have to be recorded first.
constexpr int64_t kSteadyAfter = 5;
/// Steps after the recording, with which the recorded ones are compared.
constexpr int64_t kStepsAfter = 5;
/// A long training is profiled by trainopt run.
constexpr int64_t kMaxSteps = 1000;

/// What of the recipe does not fit a short run with one recording.
std::vector<std::string> unused_keys(const LoadedRecipe& loaded) {
  const Recipe& recipe = loaded.recipe;
  std::vector<std::string> keys;
  if (recipe.checkpoint.resume != "none") keys.push_back("checkpoint.resume");
  if (recipe.profiler.options.repeat != 1) keys.push_back("profiler.repeat");
  if (!recipe.profiler.on && loaded.origins.contains("profiler")) keys.push_back("profiler: false");
  return keys;
}

/// So short a run would leave a schedule no room for its phases, and no speed depends on where it ends.
void set_far_end(SchedulerConfig& scheduler) {
  std::visit(
      [](auto& c) {
        if constexpr (requires { c.end; })
          if (!c.end.total_steps) c.end.total_steps = 1'000'000'000;
      },
      scheduler.schedule);
}

/// A training just long enough for one recording, which does nothing but train. Throws UserError if it would be long.
void make_short(LoadedRecipe& loaded) {
  Recipe& recipe = loaded.recipe;
  ProfilerConfig& profiler = recipe.profiler.options;
  recipe.profiler.on = true;
  profiler.repeat = 1;
  profiler.wait = std::max<int64_t>(profiler.wait, kSteadyAfter);
  const auto& activities = profiler.activities;
  const bool operations = std::find(activities.begin(), activities.end(), ProfiledActivity::cpu) != activities.end();
  if (!loaded.origins.contains("profiler.record_shapes")) profiler.record_shapes = operations;
  if (!loaded.origins.contains("profiler.with_flops")) profiler.with_flops = profiler.record_shapes;
  const int64_t steps = profiled_steps(profiler) + kStepsAfter;
  if (steps > kMaxSteps)
    throw UserError(
        fmt::format("profile takes at most {}; lower profiler.wait, warmup or active, or use trainopt run, "
                    "which records within a training of any length: {}",
                    counted(kMaxSteps, "step"), with_commas(steps)));
  recipe.train.max_steps = steps;
  recipe.train.epochs.reset();
  recipe.train.max_time.reset();
  recipe.train.target = {};
  set_far_end(recipe.scheduler);
  if (auto* swa = std::get_if<SwaConfig>(&recipe.average)) swa->start_step = 1;
  recipe.bench.warmup_steps = kSteadyAfter;  // recorded steps are compared with steady ones
  recipe.evaluation.every_n_steps.reset();
  recipe.evaluation.at_end = false;
  recipe.checkpoint.every_n_steps.reset();
  recipe.checkpoint.at_end = false;
  recipe.checkpoint.resume = "none";
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

/// What the recording cost, from the run's summary: {"steps": 3, "other_steps": 5, "slowdown_pct": 2.5 or null}.
Json cost_of_recording(const std::filesystem::path& run_dir, int64_t recorded_steps) {
  const Json summary = parse_json(read_file(run_dir / "summary.json", ExitCode::storage));
  return {{"steps", recorded_steps},
          {"other_steps", summary.at("measured_steps")},
          {"slowdown_pct", summary.at("profiler").at("slowdown_pct")}};
}

std::string cost_text(const Json& cost) {
  if (cost.at("slowdown_pct").is_null()) return "";
  return fmt::format("\n{}, from only {} recorded and {} other steps\n",
                     slowdown_text(cost.at("slowdown_pct").get<double>()), cost.at("steps").get<int64_t>(),
                     cost.at("other_steps").get<int64_t>());
}

/// Empty if trainopt roofline has not measured this machine.
std::vector<UnitLimit> limits_of(const Recipe& recipe, const Launch& launch, const Environment& environment) {
  const Plan plan = make_plan(recipe, this_machine(environment), launch.position);
  const auto measured = measured_peaks(plan.device, environment);
  if (const std::string disturbed = measured ? disturbance(*measured) : ""; !disturbed.empty())
    log_warning("{}", disturbed);
  return measured ? unit_limits_of(plan, *measured) : std::vector<UnitLimit>();
}

void show(const std::vector<std::filesystem::path>& traces, const std::filesystem::path& run_dir,
          const TraceOptions& options, int64_t recorded_steps, const std::vector<UnitLimit>& limits, bool as_json) {
  if (traces.empty())
    throw UserError(fmt::format("no trace was written, so there is nothing to show: {}", run_dir.string()),
                    ExitCode::storage);
  const trace::TraceAnalysis analysis = trace::analyse_traces(traces, options.analysis);
  const Json cost = cost_of_recording(run_dir, recorded_steps);
  const auto json_of = [&](const trace::AnalysisView& view) {
    Json json = trace::analysis_json(analysis, view);
    json["recording"] = cost;
    add_attained(json, limits);
    return json;
  };
  write_file(run_dir / "profile.json", json_text(json_of({}), 2) + "\n");
  write_file(run_dir / "operations.csv", trace::operations_csv(analysis));
  write_own_report(run_dir);
  if (as_json) return print_json(json_of(options.view));
  print_out("{}{}{}\nwrote {}: profile.json, operations.csv, and in trace/ what https://ui.perfetto.dev opens\n",
            trace::analysis_text(analysis, options.view), attained_text(json_of(options.view)), cost_text(cost),
            run_dir.string());
}

}  // namespace

Command add_profile(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("profile", "Profile a few steps and show where their time goes; at most 1,000 steps in all");
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
    recipes->add_run_dir(*run_dir);
    LoadedRecipe loaded = recipes->load(*command, launch.position.ranks);
    if (loaded.recipe.profiler.on && loaded.recipe.profiler.options.activities.empty())
      throw UserError("profiler.activities is empty, so there would be nothing to show");
    const auto unused = unused_keys(loaded);
    make_short(loaded);
    const ProfilerConfig& profiler = loaded.recipe.profiler.options;
    const int64_t first_step = profiler.wait + profiler.warmup + 1, last_step = first_step + profiler.active - 1;
    const std::string steps = first_step == last_step ? fmt::format("step {}", first_step)
                                                      : fmt::format("steps {} to {}", first_step, last_step);
    if (const auto step = options->analysis.step; step && (*step < first_step || *step > last_step))
      throw UserError(fmt::format("--step is not among the profiled ones, {}: {}", steps, *step));
    if (!unused.empty() && launch.position.is_first())
      log_warning("profile makes one recording, from the initial weights, and does not use {}",
                  fmt::join(unused, ", "));
    if (!output.quiet && launch.position.is_first()) log_info("profiling {}", steps);
    output.quiet = output.silent = true;
    return run_session(launch, loaded,
                       {.injections = {},
                        .output = output,
                        .then =
                            [&](const EndedRun& run) {
                              if (run.member.is_first())
                                show(traces_in(run.run_dir, launch.position.ranks, first_step), run.run_dir, *options,
                                     profiler.active, limits_of(loaded.recipe, launch, context.environment), *as_json);
                              return 0;
                            }},
                       context.environment);
  };
}

}  // namespace trainopt
