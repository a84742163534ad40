// Tests the same recipe on the CPU and on the GPU.
#include "recipes.h"
#include "support/catch.h"

using namespace trainopt;
using namespace trainopt::test;

TEST_CASE("ten steps in float32 have the same losses as on the CPU") {
  Recipe recipe = small_recipe("cpu");
  // Batch-norm over so few samples amplifies rounding errors; small steps keep them at 1e-5.
  recipe.optimizer = SgdConfig{.lr = 1e-4};
  const auto cpu = train(recipe).rows.losses();
  recipe.device = "cuda";
  const auto gpu = train(recipe).rows.losses();
  REQUIRE(gpu.size() == 10);
  REQUIRE(cpu.size() == 10);
  for (size_t step = 0; step < 10; ++step) {
    INFO("step " << step + 1);
    CHECK(gpu[step] == Approx(cpu[step]).epsilon(1e-3));
  }
}

TEST_CASE("a perceptron with momentum and clipping has the same losses and norms as on the CPU") {
  Recipe recipe = small_recipe("cpu");
  recipe.model = {.name = ModelKind::mlp, .hidden = {64, 32}};
  recipe.train.max_grad_norm = 0.5;
  const Finished cpu = train(recipe);
  recipe.device = "cuda";
  const Finished gpu = train(recipe);
  for (size_t step = 0; step < 10; ++step) {
    CHECK(*gpu.rows.rows[step][Metric::loss] == Approx(*cpu.rows.rows[step][Metric::loss]).epsilon(1e-3));
    CHECK(*gpu.rows.rows[step][Metric::grad_norm] == Approx(*cpu.rows.rows[step][Metric::grad_norm]).epsilon(1e-3));
  }
}
