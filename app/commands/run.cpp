// trainopt run RECIPE...: train.
#include "app/commands.h"
#include "app/explain.h"
#include "app/measure_options.h"
#include "app/run_directory.h"
#include "app/run_report.h"
#include "app/signals.h"
#include "base/counted.h"
#include "base/files.h"
#include "base/log.h"
#include "checkpoint/run_lock.h"
#include "metrics/watchdog.h"
#include "compare/ablation_report.h"
#include "recipe/make_plan.h"
#include "recipe/plan_text.h"
#include "recipe/resume.h"
#include "train/checkpoint_reader.h"
#include "train/checkpoint_writer.h"
#include "train/inject.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <torch/version.h>

#include <cstdio>
#include <exception>

namespace trainopt {
namespace {

/// What the run is, written before it starts.
void write_beginning(const std::filesystem::path& run_dir, const Recipe& recipe, const Plan& plan) {
  write_file(run_dir / "recipe.yaml", recipe_yaml(recipe));
  write_file(run_dir / "plan.json", plan_json(plan).dump(2) + "\n");
}

/// The state to go on from, if there is one, read and compared with the recipe.
std::optional<ArchiveReader> read_state(const RunFolder& folder, const std::filesystem::path& checkpoints, const Recipe& recipe, Plan& plan) {
  if (recipe.checkpoint.resume == "none") return std::nullopt;
  std::optional<ArchiveReader> state;
  if (folder.from) state = read_checkpoint(*folder.from);
  else state = read_newest_checkpoint(checkpoints, [](const std::string& why) { spdlog::warn("{}; trying the one before", why); });
  if (!state) {
    plan.notes.push_back(fmt::format("checkpoint.resume: auto finds no checkpoint in {}: this is the beginning", folder.path.string()));
    return state;
  }
  const Recipe stored = load_recipe({.files = {state->where() / kRecipeFile}, .overrides = {}}).recipe;
  for (auto& note : check_resume(stored, recipe)) plan.notes.push_back(std::move(note));
  plan.notes.push_back(fmt::format("goes on after step {} of {}", state->integer("step"), state->where().string()));
  return state;
}

/// Whether the run directory is of a run that came to its end, and the recipe asks for no more.
bool nothing_left(const std::filesystem::path& run_dir, const ArchiveReader& state, const Plan& plan) {
  if (!plan.steps || state.integer("step") < *plan.steps || !std::filesystem::exists(run_dir / "summary.json")) return false;
  const Json summary = Json::parse(read_file(run_dir / "summary.json", ExitCode::storage), nullptr, /*allow_exceptions=*/false);
  return summary.is_object() && summary.value("status", "") == "done" && summary.value("steps", int64_t{0}) == state.integer("step");
}

/// Hands on what the trainer says. Until there is a report only the watchdog hears it: a run directory that a run goes on in stays as it is
/// until the trainer has taken the state.
class Relay : public RunListener {
 public:
  explicit Relay(Watchdog& watchdog) : watchdog_(watchdog) {}
  void step_done(const Row& row) override { report->step_done(row); }
  void evaluated(int64_t step, const EvaluationResult& result) override { report->evaluated(step, result); }
  void not_finite(const NonfiniteStep& event) override { report->not_finite(event); }
  void save(ArchiveWriter& archive) override { report->save(archive); }
  void at(const char* stage, int64_t steps) override { watchdog_.at(stage, steps); }

  std::optional<RunReport> report;

 private:
  Watchdog& watchdog_;
};

CheckpointWriterOptions checkpoint_options(const RunFolder& folder, const std::filesystem::path& checkpoints, const Recipe& recipe,
                                           const std::optional<ArchiveReader>& state) {
  CheckpointWriterOptions options{.root = checkpoints, .every_n_steps = recipe.checkpoint.every_n_steps, .keep_last = recipe.checkpoint.keep_last,
                                  .background = recipe.checkpoint.background};
  if (state && folder.continues) options.keep.push_back(state->integer("step"));
  options.recipe = recipe_yaml(recipe);
  options.versions = {{"trainopt", TRAINOPT_VERSION}, {"libtorch", TORCH_VERSION}};
  options.before_commit = [run_dir = folder.path] { RunReport::sync_records(run_dir); };
  options.requested = &save_request();
  return options;
}

RunEnd end_of(const RunOutcome& outcome, const Plan& plan, const std::optional<int64_t>& saved_step) {
  if (outcome.stopped_by_signal != 0)
    return {"stopped", fmt::format("by signal {} after {}{}", outcome.stopped_by_signal, counted(outcome.steps, "step"),
                                   saved_step == outcome.steps ? fmt::format(", saved as {}", checkpoint_name(outcome.steps)) : ""),
            128 + outcome.stopped_by_signal};
  return {"done", !plan.steps || outcome.steps < *plan.steps ? fmt::format("after {} (train.max_time: {})", counted(outcome.steps, "step"), to_text(*plan.train.max_time))
                                             : fmt::format("after {}", counted(outcome.steps, "step")),
          0};
}

RunEnd failure(const std::exception& error) {
  const auto [message, code] = explain(error);
  return {"failed", message, static_cast<int>(code)};
}

/// What ended the run is what the user must read, also where its summary cannot be written.
void finish_failed(RunReport& report, const Plan& plan, const Trainer* trainer, const RunEnd& end, double before_training) {
  try {
    report.finish(plan, trainer, end, before_training);
  } catch (const std::exception& error) {
    spdlog::error("{}", explain(error).message);
  }
}

/// What the job would gain if one cost were nothing; after the run, whose memory is free again.
void show_ceilings(const Recipe& recipe, const Machine& machine, const std::filesystem::path& run_dir, const MeasureOptions& measure, const Speech& speech) {
  CompareOptions options = measure.options();
  options.warmup_steps = recipe.bench.warmup_steps;
  if (!speech.quiet) std::printf("\nmeasuring ceilings for at most %s\n", measure.budget.c_str());
  std::fflush(stdout);
  const auto ceilings = measure_ceilings(recipe, run_dir / "ceilings", options, measure.end(), machine, {.stop = &stop_signal()});
  write_file(run_dir / "ceilings.json", Json{{"schema_version", 1}, {"ceilings", ceilings_json(ceilings)}}.dump(2) + "\n");
  std::fputs(ceilings_text(ceilings).c_str(), stdout);
}

int train(const LoadedRecipe& loaded, const Speech& speech, const std::vector<Injection>& injections, const std::optional<MeasureOptions>& ceilings) {
  const auto began = Clock::now();
  const Machine machine = detect_machine();
  Plan plan = make_plan(loaded.recipe, machine);
  plan.notes.insert(plan.notes.begin(), loaded.notes.begin(), loaded.notes.end());
  inject(plan, injections);
  apply(plan.process);
  const RunFolder folder = choose_run_directory(loaded.recipe);
  const auto& run_dir = folder.path;
  const RunLock lock(run_dir);
  log_to_file(run_dir / "run.log");
  Watchdog watchdog({.timeout_s = loaded.recipe.watchdog.timeout.seconds, .grace_s = loaded.recipe.checkpoint.grace_period.seconds, .run_dir = run_dir,
                     .stop_signal = &stop_signal()});
  watchdog.at("reading the checkpoint", 0);
  const auto checkpoints = run_dir / "checkpoints";
  if (folder.continues) remove_drafts(checkpoints);
  std::optional<ArchiveReader> state = read_state(folder, checkpoints, loaded.recipe, plan);
  if (folder.continues && state && nothing_left(run_dir, *state, plan)) {
    std::printf("nothing is left to do: the run in %s was done after %s\n", run_dir.c_str(), counted(*plan.steps, "step").c_str());
    return 0;
  }
  if (!speech.quiet) std::printf("%s\n", plan_text(plan).c_str());
  std::fflush(stdout);
  if (speech.quiet)   // the plan's text says it too
    for (const auto& entry : plan.switches)
      if (!entry.outcome.has_effect) spdlog::warn("{} has no effect here: {}", entry.name, entry.outcome.text);

  std::optional<RecordsSoFar> so_far;
  if (folder.continues) so_far = state ? RecordsSoFar::of(*state) : RecordsSoFar{};
  CheckpointWriter writer(checkpoint_options(folder, checkpoints, loaded.recipe, state));
  Relay relay(watchdog);
  const auto take_run_directory = [&] {
    if (so_far)
      if (const auto newer = set_aside_newer(checkpoints, so_far->step); !newer.empty())
        spdlog::info("checkpoints newer than the one to go on from are kept as abandoned-step-…: steps {}", fmt::join(newer, ", "));
    remove_file(run_dir / "summary.json");   // of the process before: this one's is still to come
    write_beginning(run_dir, loaded.recipe, plan);
    relay.report.emplace(plan, run_dir, so_far, speech.quiet, !speech.no_color);
  };
  std::optional<Trainer> trainer;
  double before_training = 0;
  try {
    if (!folder.continues) take_run_directory();
    trainer.emplace(plan, run_dir, relay, stop_signal(),
                    Persistence{.checkpoints = &writer, .resume = state ? &*state : nullptr, .forks = state && !folder.continues});
    state.reset();   // its tensors are as large as the trainer's
    if (folder.continues) take_run_directory();
    before_training = seconds_since(began);
    trainer->run();
    if (const auto bad = first_not_finite(trainer->model().state()))
      throw UserError(fmt::format("the weights are not finite after the last step, so they were not written: {}", *bad), ExitCode::diverged);
    trainer->model().save_weights(run_dir / "weights.safetensors", {{"format", "pt"}});
  } catch (const std::exception& error) {   // named recovery: the summary says how the run ended; main() says the rest
    if (relay.report) finish_failed(*relay.report, plan, trainer ? &*trainer : nullptr, failure(error), before_training);
    throw;
  }
  const RunEnd end = end_of(trainer->outcome(), plan, writer.saved_step());
  relay.report->finish(plan, &*trainer, end, before_training);
  watchdog.finished();
  trainer.reset();
  if (!ceilings || end.status != "done") return end.exit_code;
  show_ceilings(loaded.recipe, machine, run_dir, *ceilings, speech);
  return stop_signal() != 0 ? 128 + stop_signal() : 0;
}

}  // namespace

Command add_run(CLI::App& app) {
  CLI::App* command = app.add_subcommand("run", "Train");
  const auto recipes = std::make_shared<RecipeArguments>();
  const auto run_dir = std::make_shared<std::string>();
  command->add_option("--run-dir", *run_dir, "Exactly this run directory");
  const auto ceilings = std::make_shared<bool>(false);
  const auto faults = std::make_shared<std::vector<std::string>>();
  command->add_option("--inject", *faults, "Break something on purpose, to see what the run does: nan@12, gradient@12, oom@3, hang@5, kill@7; + each time it is tried")
      ->type_name("FAULT@STEP[+]")->allow_extra_args(false)->take_all();
  const auto measure = std::make_shared<MeasureOptions>();
  command->add_flag("--ceilings", *ceilings, "Then measure what the job would gain if loading, the optimizer or logging cost nothing");
  for (CLI::Option* option : measure->add_to(*command, "3m")) option->needs("--ceilings");
  recipes->add_to(*command);
  return [=](const CommandContext& context) {
    refuse_several_ranks(context.environment);
    handle_signals();
    if (!run_dir->empty()) recipes->words.push_back(fmt::format("run_dir={}", Json(*run_dir).dump()));   // quoted: any path is one YAML scalar
    if (*ceilings) measure->options(), measure->budget_s();   // what is wrong is said before the training
    std::vector<Injection> injections;
    for (const auto& text : *faults) injections.push_back(parse_injection(text));
    return train(recipes->load(*command), context.speech, injections, *ceilings ? std::optional(*measure) : std::nullopt);
  };
}

}  // namespace trainopt
