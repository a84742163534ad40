// trainopt arm: the process that `compare` and `ablate` start for an arm that needs its own. Internal, so hidden from
// --help.
#include "app/commands.h"
#include "app/explain.h"
#include "compare/arm_service.h"
#include "compare/local_arm.h"
#include "compare/make_arm.h"

#include <CLI/CLI.hpp>
#include <csignal>
#include <sys/prctl.h>

namespace trainopt {
namespace {

/// Applies the plan's settings to the whole process, which is why the arm needs its own.
std::unique_ptr<Arm> arm_of(const ArmSpec& spec, Clock::time_point began, const Environment& environment) {
  Plan plan = arm_plan(spec, detect_machine(visible_devices(environment)));
  apply(plan.process);
  return std::make_unique<LocalArm>(std::move(plan), spec.folder, began, /*exclusive_process=*/true);
}

std::optional<Ceiling> ceiling_of(const std::string& word) {
  for (const auto& choice : Choices<Ceiling>::all)
    if (choice.word == word) return choice.value;
  return std::nullopt;
}

}  // namespace

Command add_arm(CLI::App& app) {
  CLI::App* command = app.add_subcommand("arm", "One arm of a comparison")->group("");
  const auto recipes = std::make_shared<RecipeArguments>();
  const auto socket = std::make_shared<int>(-1);
  const auto folder = std::make_shared<std::string>();
  const auto without = std::make_shared<std::string>();
  const auto perturbed = std::make_shared<bool>(false);
  const auto batch_seed = std::make_shared<std::optional<int64_t>>();
  command->add_option("--socket", *socket)->required();
  command->add_option("--folder", *folder)->required();
  command->add_option("--without-cost", *without);
  command->add_option("--batch-seed", *batch_seed);
  command->add_flag("--perturbed", *perturbed);
  recipes->add_to(*command);
  return [=](const CommandContext& context) {
    const auto began = Clock::now();
    // Signals from the terminal reach the whole process group; the comparison decides what they mean.
    for (const int number : {SIGINT, SIGTERM, SIGUSR1}) std::signal(number, SIG_IGN);
    // The parent may be killed; the arm must not keep training without it.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto make = [&] {
      return arm_of({.recipe = recipes->load(*command).recipe,
                     .folder = *folder,
                     .without = ceiling_of(*without),
                     .batch_seed = *batch_seed,
                     .perturbed = *perturbed},
                    began, context.environment);
    };
    serve_arm(*socket, make, [](const std::exception& error) {
      const auto [sentence, code] = explain(error);
      return std::pair(sentence, code);
    });
    return 0;
  };
}

}  // namespace trainopt
