// debug.anomaly together with the optimizations and with several ranks.
#include "device/tensor.h"
#include "recipe/make_plan.h"
#include "support/catch.h"
#include "support/planted_units.h"
#include "support/plans.h"
#include "support/ranks.h"

namespace debug_tests {

using namespace trainopt;
using namespace trainopt::test;

namespace {

Recipe checked_recipe(int64_t steps = 4) {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model.stem = StemKind::cifar;
  recipe.data.size = 16;
  recipe.data.batch_size = 4;
  recipe.data.transforms = {ResizeConfig{.shorter_side = 16},
                            NormalizeConfig{.mean = {0.5, 0.5, 0.5}, .std = {0.5, 0.5, 0.5}}};
  recipe.train.max_steps = steps;
  recipe.optimizer = SgdConfig{.lr = 1e-4};
  recipe.debug.anomaly = true;
  return recipe;
}

Plan plan_of(const Recipe& recipe, const RankPosition& position = {}) {
  return make_plan(recipe, Machine{.cpu = "test", .cores = 2}, position);
}

std::vector<double> losses_of(const Plan& plan) {
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped());
  trainer.run();
  return rows.losses();
}

std::string failure_of(const Plan& plan) {
  try {
    losses_of(plan);
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::diverged);
    return error.what();
  }
  return "no failure";
}

at::Tensor divided(const at::Tensor& x) { return x.div(0); }

}  // namespace

TEST_CASE("checking every operation changes no loss of an optimized plan, and finds nothing in it") {
  Recipe recipe = checked_recipe();
  const auto type = GENERATE(amp::Type::bfloat16, amp::Type::float16);
  recipe.optimizations.amp = {true, {.dtype = type, .init_scale = 64}};
  recipe.optimizations.fused_kernels = recipe.optimizations.winograd.on = true;
  recipe.optimizations.fused_optimizer = recipe.optimizations.channels_last = true;
  const auto checked = losses_of(plan_of(recipe));
  recipe.debug.anomaly = false;
  CHECK(checked == losses_of(plan_of(recipe)));
}

TEST_CASE("an overflow of scaled gradients is no anomaly, and does not hide one of the forward") {
  Recipe recipe = checked_recipe(6);
  recipe.optimizations.amp = {true, {.dtype = amp::Type::float16, .init_scale = 1e30}};
  CHECK(losses_of(plan_of(recipe)).size() == 6);
  Plan plan = plan_of(recipe);
  plant(plan, "layer2.0", only_in(3, divided));
  CHECK_THAT(failure_of(plan), ContainsSubstring("in step 3 in aten::div in forward of unit layer2.0"));
}

TEST_CASE("what fused kernels and Winograd's convolutions write is attributed to their unit") {
  Recipe recipe = checked_recipe();
  recipe.optimizations.fused_kernels = recipe.optimizations.winograd.on = true;
  Plan plan = plan_of(recipe);
  // Finite activations that overflow in the next unit's first convolution, whose kernel libtorch does not see.
  plant(plan, "layer1.0", only_in(2, [](const at::Tensor& x) { return x.clamp(-1, 1) * 3e38; }));
  CHECK_THAT(failure_of(plan), ContainsSubstring("in step 2") &&
                                   ContainsSubstring("of unit layer1.1, in trainopt::winograd_convolution"));
}

TEST_CASE("with several ranks the message names the rank on which it began, on all of them") {
  for (const auto strategy : {ShardingStrategy::none, ShardingStrategy::zero3}) {
    Recipe recipe = checked_recipe();
    recipe.model = {.name = ModelKind::mlp, .hidden = {16}};
    recipe.parallel.sharding_strategy = strategy;
    std::vector<std::string> messages(2);
    as_ranks(2, [&](Job&, Communicator& communicator) {
      const RankPosition position = communicator.position();
      Plan plan = plan_of(recipe, position);
      plant(plan, "layers.0",
            only_in(
                2, position.rank == 1 ? divided : [](const at::Tensor& x) { return x; }));
      Rows rows;
      Trainer trainer(plan, {}, rows, never_stopped(), {},
                      std::shared_ptr<Communicator>(&communicator, [](Communicator*) {}));
      try {
        trainer.run();
      } catch (const UserError& error) {
        messages[static_cast<size_t>(position.rank)] = error.what();
      }
    });
    for (const auto& message : messages)
      CHECK_THAT(message, ContainsSubstring("it began on rank 1 in step 2 in aten::div in forward of unit layers.0") &&
                              !ContainsSubstring("rank 0"));
  }
}

}  // namespace debug_tests
