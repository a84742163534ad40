// trainopt plan RECIPE: prints what would happen here and why.
#include "app/commands.h"
#include "base/print.h"
#include "recipe/make_plan.h"
#include "recipe/memory_remedies.h"
#include "recipe/plan_text.h"

#include <CLI/CLI.hpp>

namespace trainopt {

Command add_plan(CLI::App& app) {
  CLI::App* command = app.add_subcommand("plan", "Print what would happen here and why, then stop");
  const auto recipes = std::make_shared<RecipeArguments>();
  const auto json = std::make_shared<bool>(false);
  const auto assumptions = std::make_shared<std::string>();
  const auto schedule = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print one JSON object");
  command->add_flag("--schedule", *schedule, "Draw the learning rate over the run instead; with --json: its numbers");
  command
      ->add_option("--assume", *assumptions,
                   "Plan for another machine: gpus=8,ranks=8,arch=sm_90,memory_gib=80,cores=64; memory_gib is the "
                   "memory of the GPU or, for a plan on the CPU, of the machine; machines=2: ranks on so many of them")
      ->check([](const std::string& text) { return text.empty() ? "must not be empty" : ""; });
  recipes->add_to(*command);
  return [=](const CommandContext& context) {
    refuse_several_ranks(context.environment, "trainopt plan");
    const Machine here = this_machine(context.environment);
    const auto [machine, position] = assumptions->empty() ? AssumedJob{here, {}} : assume(here, *assumptions);
    const auto loaded = recipes->load(*command, position.ranks);
    require_model_files(loaded.recipe);
    Plan plan = make_plan(loaded.recipe, machine, position);
    if (*schedule) {
      if (*json)
        print_json(schedule_json(plan));
      else
        print_text(schedule_picture(plan));
      return 0;
    }
    add_memory_forecast(loaded.recipe, plan);
    plan.notes.insert(plan.notes.begin(), loaded.notes.begin(), loaded.notes.end());
    if (*json) {
      Json all = plan_json(plan);
      all["recipe"] = recipe_json(loaded.recipe);
      print_json(all);
    } else {
      print_text(plan_text(plan));
    }
    return 0;
  };
}

}  // namespace trainopt
