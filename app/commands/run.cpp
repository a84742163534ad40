// trainopt run RECIPE...: train.
#include "app/commands.h"
#include "app/explain.h"
#include "app/run_directory.h"
#include "app/run_report.h"
#include "app/signals.h"
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
    return {"stopped", fmt::format("by signal {} after step {}", outcome.stopped_by_signal, outcome.steps), 128 + outcome.stopped_by_signal};
  return {"done", outcome.steps < plan.steps ? fmt::format("after {} (train.max_time), {} steps", to_text(*plan.train.max_time), outcome.steps)
                                             : fmt::format("after {} steps", outcome.steps),
          0};
}

RunEnd failure(const std::exception& error) {
  const auto [message, code] = explain(error);
  return {"failed", message, static_cast<int>(code)};
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
    report.finish(plan, trainer ? &*trainer : nullptr, failure(error), before_training);
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
    if (!run_dir->empty()) recipes->words.push_back(fmt::format("run_dir={}", Json(*run_dir).dump()));   // quoted: any path is one YAML scalar
    return train(recipes->load(*command), context.speech);
  };
}

}  // namespace trainopt
