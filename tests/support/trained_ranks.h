// Trains a recipe on several ranks, each a thread.
#pragma once

#include "recipe/make_plan.h"
#include "support/plans.h"
#include "support/ranks.h"

#include <mutex>

namespace trainopt::test {

struct Trained {
  std::vector<double> losses;  ///< as reported by rank 0
  std::vector<EvaluationResult> evaluations;
  NamedTensors weights;
  StepTrace trace;
  std::vector<SwitchReceipt> receipts;
};

/// `recipe.data.batch_size` is per rank; one rank uses the ordinary trainer.
inline Trained train_as(int64_t ranks, const Recipe& recipe, const Persistence& persistence = {},
                        int64_t machines = 1) {
  Trained result;
  const auto train = [&](const RankPosition& position, std::shared_ptr<Communicator> communicator) {
    const Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 1}, position);
    Rows rows;
    Trainer trainer(plan, {}, rows, never_stopped(),
                    position.is_first() ? persistence : Persistence{.resume = persistence.resume, .forks = true},
                    communicator);
    trainer.run();
    const auto weights = trainer.weights();
    if (!position.is_first()) return;
    result.losses = rows.losses();
    result.evaluations = rows.evaluations;
    for (const auto& [name, tensor] : weights) result.weights.emplace_back(name, tensor.detach().clone());
    result.trace = trainer.outcome().trace;
    result.receipts = receipts(plan.switches, result.trace);
  };
  if (ranks == 1) {
    train({}, make_single_communicator());
    return result;
  }
  // Set once for all threads, so that each trainer's own guard finds nothing to change in their shared state.
  const BackendGuard settings(
      make_plan(recipe, Machine{.cpu = "test"}, {.ranks = ranks, .local_ranks = ranks}).backend);
  as_ranks(
      ranks,
      [&](Job&, Communicator& communicator) {
        train(communicator.position(), std::shared_ptr<Communicator>(&communicator, [](Communicator*) {}));
      },
      60, machines);
  return result;
}

}  // namespace trainopt::test
