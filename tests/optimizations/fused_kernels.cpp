// The switch fused_kernels: its task and its plan. tests/kernels tests the kernels.
#include "kernels/head_checks.h"
#include "model/builder.h"
#include "model/model.h"
#include "optimizations/fused_kernels/fused_task.h"
#include "recipe/make_plan.h"

using namespace trainopt;
using namespace trainopt::test;

TEST_CASE("the fused task has the plain task's outputs, loss, gradients and evaluation loss") {
  Model model = make_model({.name = ModelKind::mlp, .num_classes = 7, .hidden = {5}}, {1, 3, 3}, at::kCPU, 5);
  at::manual_seed(26);
  const at::Tensor input = at::randn({6, 1, 3, 3}), target = random_targets(6, 7, at::kCPU);
  const ClassificationTask plain(0.1);
  const fused_kernels::FusedClassificationTask fused(0.1, kernels::cpu_head_kernels());
  const auto gradients = [&](const Task& task, const at::Tensor& of) {
    const TaskOutput output = task.loss(model, input, of, {.training = true});
    output.loss.backward();
    std::vector<at::Tensor> all{output.loss.detach(), output.outputs.detach()};
    for (const auto& [name, parameter] : model.parameters()) {
      all.push_back(parameter.grad().clone());
      parameter.mutable_grad().reset();
    }
    return all;
  };
  const auto got = gradients(fused, target), wanted = gradients(plain, target);
  CHECK(got[1].equal(wanted[1]));
  for (size_t i = 0; i < got.size(); ++i) check_near(got[i], wanted[i], 1e-6);
  CHECK(
      fused.evaluation_loss(model, input, target, {}).loss.equal(plain.evaluation_loss(model, input, target, {}).loss));
  // A target outside the classes is refused with the same message, and nothing is read out of bounds.
  for (const int64_t none : {7, -1}) {
    const at::Tensor wrong = target.clone();
    wrong[3] = none;
    const std::string words = fmt::format("Target {} is out of bounds.", none);
    CHECK_THROWS_WITH(gradients(plain, wrong), ContainsSubstring(words));
    CHECK_THROWS_WITH(gradients(fused, wrong), ContainsSubstring(words));
  }
}

TEST_CASE("a plan for an assumed GPU uses GPU kernels if the build has them") {
  Recipe recipe;
  recipe.device = "cuda";
  recipe.optimizations.fused_kernels = true;
  const Plan plan = make_plan(recipe, assume(Machine{}, "gpus=1,arch=sm_90,memory_gib=80").machine);
  REQUIRE(plan.device.is_cuda());
  REQUIRE(plan.switches.size() == 1);
  const Outcome& outcome = plan.switches[0].outcome;
  CHECK(outcome.has_effect == (kernels::cuda_norm_kernels() != nullptr));
  if (!outcome.has_effect) CHECK_THAT(outcome.text, ContainsSubstring("TRAINOPT_CUDA"));
}
