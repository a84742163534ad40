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
#include "compare/ablation_report.h"
#include "recipe/make_plan.h"
#include "recipe/plan_text.h"

#include <spdlog/spdlog.h>

#include <cstdio>
#include <exception>

namespace trainopt {
namespace {

/// What the run is, written before it starts.
void write_beginning(const std::filesystem::path& run_dir, const Recipe& recipe, const Plan& plan) {
  write_file(run_dir / "recipe.yaml", recipe_yaml(recipe));
  write_file(run_dir / "plan.json", plan_json(plan).dump(2) + "\n");
  log_to_file(run_dir / "run.log");
}

void write_results(const std::filesystem::path& run_dir, const Trainer& trainer) {
  trainer.model().save_weights(run_dir / "weights.safetensors");
  if (!trainer.plan().checkpoint.at_end) return;
  ArchiveWriter archive;
  trainer.save(archive);
  archive.write(run_dir / "checkpoints" / fmt::format("step-{:08}", trainer.outcome().steps));
}

RunEnd end_of(const RunOutcome& outcome, const Plan& plan) {
  if (outcome.stopped_by_signal != 0)
    return {"stopped", fmt::format("by signal {} after {}", outcome.stopped_by_signal, counted(outcome.steps, "step")), 128 + outcome.stopped_by_signal};
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

int train(const LoadedRecipe& loaded, const Speech& speech, const std::optional<MeasureOptions>& ceilings) {
  const auto began = Clock::now();
  const Machine machine = detect_machine();
  Plan plan = make_plan(loaded.recipe, machine);
  plan.notes.insert(plan.notes.begin(), loaded.notes.begin(), loaded.notes.end());
  apply(plan.process);
  const auto run_dir = make_run_directory(loaded.recipe);
  write_beginning(run_dir, loaded.recipe, plan);
  if (!speech.quiet) std::printf("%s\n", plan_text(plan).c_str());
  std::fflush(stdout);
  if (speech.quiet)   // the plan's text says it too
    for (const auto& entry : plan.switches)
      if (!entry.outcome.has_effect) spdlog::warn("{} has no effect here: {}", entry.name, entry.outcome.text);

  RunReport report(plan, run_dir, speech.quiet, !speech.no_color);
  std::optional<Trainer> trainer;
  double before_training = 0;
  try {
    trainer.emplace(plan, run_dir, report, stop_signal());
    before_training = seconds_since(began);
    trainer->run();
    write_results(run_dir, *trainer);
  } catch (const std::exception& error) {   // named recovery: the summary says how the run ended; main() says the rest
    finish_failed(report, plan, trainer ? &*trainer : nullptr, failure(error), before_training);
    throw;
  }
  const RunEnd end = end_of(trainer->outcome(), plan);
  report.finish(plan, &*trainer, end, before_training);
  trainer.reset();
  if (ceilings && end.status == "done") show_ceilings(loaded.recipe, machine, run_dir, *ceilings, speech);
  return stop_signal() != 0 ? 128 + stop_signal() : end.exit_code;
}

}  // namespace

Command add_run(CLI::App& app) {
  CLI::App* command = app.add_subcommand("run", "Train");
  const auto recipes = std::make_shared<RecipeArguments>();
  const auto run_dir = std::make_shared<std::string>();
  command->add_option("--run-dir", *run_dir, "Exactly this run directory");
  const auto ceilings = std::make_shared<bool>(false);
  const auto measure = std::make_shared<MeasureOptions>();
  command->add_flag("--ceilings", *ceilings, "Then measure what the job would gain if loading, the optimizer or logging cost nothing");
  for (CLI::Option* option : measure->add_to(*command, "3m")) option->needs("--ceilings");
  recipes->add_to(*command);
  return [=](const CommandContext& context) {
    refuse_several_ranks(context.environment);
    handle_signals();
    if (!run_dir->empty()) recipes->words.push_back(fmt::format("run_dir={}", Json(*run_dir).dump()));   // quoted: any path is one YAML scalar
    if (*ceilings) measure->options(), measure->budget_s();   // what is wrong is said before the training
    return train(recipes->load(*command), context.speech, *ceilings ? std::optional(*measure) : std::nullopt);
  };
}

}  // namespace trainopt
