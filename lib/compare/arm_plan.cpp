#include "compare/arm_plan.h"

#include "compare/ceiling_parts.h"
#include "compare/perturbed_weights.h"
#include "recipe/make_plan.h"
#include "train/inject.h"

namespace trainopt {

std::string_view meaning(Ceiling ceiling) {
  switch (ceiling) {
    case Ceiling::data:
      return "the first step's batches stay on the device and are reused in every step";
    case Ceiling::optimizer:
      return "gradients are computed and discarded";
    case Ceiling::logging:
      return "no records are written and no telemetry runs";
    case Ceiling::communication:
      return "exchanges return at once, without sending or waiting";
  }
  return "";
}

Ceiling ceiling_of(std::string_view word) {
  for (const auto& choice : Choices<Ceiling>::all)
    if (choice.word == word) return choice.value;
  throw UserError(fmt::format("there is no ceiling of this name: {}", word));
}

Plan arm_plan(const ArmSpec& spec, const Machine& machine, const RankPosition& position) {
  Recipe recipe = spec.recipe;
  recipe.logging.dump = {};  // the arm dumps only what the comparison reads
  if (spec.without == Ceiling::logging) recipe.logging.sinks.clear();
  Plan plan = make_plan(recipe, machine, position);
  plan.steps.reset();
  plan.train.max_time.reset();
  plan.evaluation.reset();
  plan.checkpoint.at_end = false;
  if (spec.batch_seed) plan.data.seed = static_cast<uint64_t>(*spec.batch_seed);
  if (spec.perturbed) begin_perturbed(plan);
  if (spec.without == Ceiling::data)
    plan.data.wrap_batches = [](std::unique_ptr<BatchSource> batches) {
      return std::make_unique<ReplayedBatches>(std::move(batches));
    };
  if (spec.without == Ceiling::optimizer)
    plan.optimizer.wrap("ceiling", "whose updates are skipped",
                        [](const BuildContext&, std::unique_ptr<Optimizer>) { return std::make_unique<NoUpdates>(); });
  std::vector<Injection> injections;
  for (const auto& fault : spec.faults) injections.push_back(parse_injection(fault));
  inject(plan, injections);
  return plan;
}

}  // namespace trainopt
