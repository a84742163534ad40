// A small convolutional training job and the results of running it.
#pragma once

#include "recipe/make_plan.h"
#include "support/plans.h"

namespace trainopt::test {

/// A ResNet-18 on 16-pixel images, ten steps.
inline Recipe small_recipe(const std::string& device) {
  Recipe recipe;
  recipe.device = device;
  recipe.model.stem = StemKind::cifar;
  recipe.data.size = 64;
  recipe.data.batch_size = 16;
  recipe.data.transforms = {ResizeConfig{.shorter_side = 16},
                            NormalizeConfig{.mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5}}};
  recipe.train.max_steps = 10;
  return recipe;
}

struct Finished {
  Rows rows;
  StepTrace seen;
  std::vector<SwitchReceipt> receipts;
};

inline Finished train(const Recipe& recipe) {
  const Plan plan = make_plan(recipe, detect_machine());
  Finished finished;
  Trainer trainer(plan, {}, finished.rows, never_stopped());
  trainer.run();
  finished.seen = trainer.outcome().trace;
  finished.receipts = receipts(plan.switches, finished.seen);
  return finished;
}

}  // namespace trainopt::test
