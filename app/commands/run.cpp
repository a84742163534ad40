// trainopt run RECIPE...: train.
#include "app/commands.h"
#include "app/explain.h"
#include "app/run_directory.h"
#include "app/run_report.h"
#include "app/signals.h"
#include "base/counted.h"
#include "base/files.h"
#include "base/log.h"
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

int train(const LoadedRecipe& loaded, const Speech& speech) {
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
  return end.exit_code;
}

}  // namespace

Command add_run(CLI::App& app) {
  CLI::App* command = app.add_subcommand("run", "Train");
  const auto recipes = std::make_shared<RecipeArguments>();
  const auto run_dir = std::make_shared<std::string>();
  command->add_option("--run-dir", *run_dir, "Exactly this run directory");
  recipes->add_to(*command);
  return [=](const CommandContext& context) {
    refuse_several_ranks(context.environment);
    handle_signals();
    if (!run_dir->empty()) recipes->words.push_back(fmt::format("run_dir={}", Json(*run_dir).dump()));   // quoted: any path is one YAML scalar
    return train(recipes->load(*command), context.speech);
  };
}

}  // namespace trainopt
