// Small plans, and a listener that stores what it receives.
#pragma once

#include "train/trainer.h"

namespace trainopt::test {

class Rows : public RunListener {
 public:
  void step_done(const StepRecord& row) override { rows.push_back(row); }
  void evaluated(int64_t, const EvaluationResult& result) override { evaluations.push_back(result); }

  std::vector<double> losses() const {
    std::vector<double> all;
    for (const StepRecord& row : rows) all.push_back(*row[Metric::loss]);
    return all;
  }

  std::vector<StepRecord> rows;
  std::vector<EvaluationResult> evaluations;
};

/// An MLP on fake CIFAR-10 resized to 8×8: milliseconds per step, with every part of a real run.
inline Plan small_plan(int64_t steps, uint64_t seed = 3) {
  Plan plan(Machine{.cpu = "test", .cores = 2}, at::kCPU, SgdConfig{.lr = 0.05});
  plan.name = "small";
  plan.seed = seed;
  plan.data.batch_size = 8;
  plan.data.transforms = {ResizeConfig{.shorter_side = 8},
                          NormalizeConfig{.mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5}}};
  plan.data.dataset = make_fake_cifar10(96, seed);
  plan.data.seed = seed;
  plan.model.config = {.name = ModelKind::mlp, .hidden = {16}, .dropout = 0.25};
  plan.model.input = plan.data.input_shape();
  plan.steps = plan.schedule_steps = steps;
  return plan;
}

inline const std::atomic<int>& never_stopped() {
  static const std::atomic<int> none{0};
  return none;
}

}  // namespace trainopt::test
