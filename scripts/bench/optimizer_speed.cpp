// The other side of bench_optimizers.py: fused updates of ResNet-18's parameters. Reads lines "update N" or "copy N"
// from standard input; after N updates, or N copies of as many floats as the model has, it prints their seconds.
// Argument: lion, lars or lamb.
#include "base/clock.h"
#include "device/tensor.h"
#include "recipe/make_plan.h"

#include <iostream>
#include <string>

using namespace trainopt;

namespace {

OptimizerConfig config_of(const std::string& name) {
  if (name == "lion") return LionConfig{.lr = 1e-5, .weight_decay = 0.1};
  if (name == "lars") return LarsConfig{.lr = 1e-3, .weight_decay = 0.1};
  if (name == "lamb") return LambConfig{.lr = 1e-5, .weight_decay = 0.1};
  throw UserError("name lion, lars or lamb: " + name);
}

}  // namespace

int main(int argc, char** argv) {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.optimizer = config_of(argc > 1 ? argv[1] : "");
  recipe.optimizations.fused_optimizer = true;
  const Plan plan = make_plan(recipe, Machine{.cpu = "this", .cores = 2});
  const auto model = plan.build_model();
  LocalParameters store(*model, ClearGradients::drop);
  int64_t count = 0;
  for (const auto& [name, parameter] : store.parameters()) {
    parameter.mutable_grad() = at::randn_like(parameter.detach());
    count += parameter.numel();
  }
  const auto optimizer = plan.optimizer.build(
      {.plan = plan, .device = at::kCPU, .run_dir = {}, .model = model.get(), .parameters = &store});
  const at::Tensor from = at::randn({count}), to = at::empty({count});
  std::string what;
  for (int64_t times = 0; std::cin >> what >> times;) {
    const auto began = Clock::now();
    for (int64_t i = 0; i < times; ++i) {
      if (what == "copy")
        to.copy_(from);
      else
        optimizer->step(store.finish_gradients(), {});
    }
    std::cout << seconds_since(began) << std::endl;
  }
}
