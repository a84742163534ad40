// The fused updates against their obvious twin.
#include "optimizations/fused_optimizer/fused_optimizer.h"
#include "support/catch.h"
#include "support/parameters.h"
#include "train/plan.h"

using namespace trainopt;
using namespace trainopt::test;

namespace {

std::unique_ptr<Optimizer> fused(const OptimizerConfig& config, GivenParameters& store) {
  Plan plan(Machine{}, at::kCPU, config);
  fused_optimizer::apply(plan);
  return plan.optimizer.build({.plan = plan, .device = at::kCPU, .run_dir = {}, .parameters = &store});
}

}  // namespace

TEST_CASE("fused updates compute what the loop computes, overflow included") {
  AdamWConfig adamw;
  adamw.weight_decay = 0.1;
  AdamConfig adam;
  adam.weight_decay = 0.1;
  const auto config = GENERATE_COPY(OptimizerConfig(SgdConfig{.lr = 0.1, .momentum = 0}), OptimizerConfig(SgdConfig{.lr = 0.1, .weight_decay = 0.01}),
                                    OptimizerConfig(SgdConfig{.lr = 0.1, .weight_decay = 0.01, .nesterov = true}), OptimizerConfig(adam), OptimizerConfig(adamw));
  const bool scaled = GENERATE(false, true);
  auto slow = some_parameters(), fast = some_parameters();
  const auto loop = make_loop_optimizer(config, slow);
  const auto one = fused(config, fast);
  for (int step = 0; step < 8; ++step) {
    const bool overflows = scaled && (step == 0 || step == 4);
    const at::Tensor overflow = scaled ? at::full({}, overflows ? 1.0f : 0.0f) : at::Tensor();
    loop->set_learning_rate(0.1 / (step + 1));
    one->set_learning_rate(0.1 / (step + 1));
    for (auto* store : {&slow, &fast}) {
      set_gradients(*store, step);
      if (overflows) store->gradients()[1].fill_(std::numeric_limits<float>::quiet_NaN());
    }
    loop->step(slow, overflow);
    one->step(fast, overflow);
    CHECK(largest_difference(slow, fast) < 2e-6);
  }
  CHECK(largest_difference(slow, some_parameters()) > 1e-3);   // something happened at all
}

TEST_CASE("fused SGD keeps a tensor for each parameter only for momentum") {
  auto store = some_parameters();
  CHECK(kept_tensors(*fused(SgdConfig{.momentum = 0}, store)) == 0);
  CHECK(kept_tensors(*fused(SgdConfig{.momentum = 0.5}, store)) == store.parameters().size());
}
