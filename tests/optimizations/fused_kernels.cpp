// The switch fused_kernels: its task, its language head and its plan. tests/kernels tests the kernels.
#include "device/autocast.h"
#include "device/cuda_library.h"
#include "device/differentiable.h"
#include "device/product.h"
#include "kernels/head_checks.h"
#include "model/builder.h"
#include "model/model.h"
#include "optimizations/fused_kernels/fused_operations.h"
#include "recipe/make_plan.h"
#include "support/plans.h"
#include "train/memory_forecast.h"

namespace fused_kernels_tests {

using namespace trainopt;
using namespace trainopt::test;

namespace {

/// A gpt2 whose logits are most of its memory.
Recipe language_recipe() {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model = {.name = ModelKind::gpt2, .layers = 1, .heads = 2, .width = 8, .context = 32, .vocabulary = 1003};
  recipe.data.dataset = DatasetKind::synthetic;
  recipe.data.size = 64;
  recipe.data.batch_size = 16;
  recipe.optimizer = SgdConfig{.lr = 0.5};
  recipe.train.max_steps = 3;
  return recipe;
}

Plan plan_of(const Recipe& recipe) { return make_plan(recipe, Machine{.cpu = "test", .cores = 2}); }

Receipt receipt_of(const Plan& plan, const Trainer& trainer) {
  for (const auto& [name, requested, receipt] : receipts(plan.switches, trainer.outcome().trace))
    if (name == "fused_kernels") return receipt;
  throw BrokenInvariant("no receipt of fused_kernels");
}

}  // namespace

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

TEST_CASE("a large linear layer has the plain one's output and gradients, and is oneDNN's where that is faster") {
  at::manual_seed(4);
  const at::Tensor input = at::randn({2, 200, 512}).requires_grad_(), weight = at::randn({1024, 512}).requires_grad_(),
                   bias = at::randn({1024}).requires_grad_(), none;
  const auto fused = fused_kernels::make_fused_linear(std::make_unique<PlainLinearOperations>());
  for (const auto& given : {bias, none}) {
    std::vector<at::Tensor> inputs{input, weight};
    if (given.defined()) inputs.push_back(given);
    const auto results = [&](const LinearOperations& operations) {
      const at::Tensor output = operations.linear(input, {.weight = weight, .bias = given, .parameter = weight});
      CHECK(has_own_backward(output) ==
            (&operations == fused.get() && onednn_is_faster(input, weight, input.numel() * weight.size(0))));
      std::vector<at::Tensor> all = gradients_of(output, output.detach().cos(), inputs);
      all.push_back(output.detach());
      return all;
    };
    const auto got = results(*fused), wanted = results(PlainLinearOperations());
    for (size_t i = 0; i < got.size(); ++i) check_near(got[i], wanted[i], 1e-4);
  }
  const AutocastGuard autocast(at::kCPU, at::kBFloat16);
  const LinearTensors layer{.weight = weight, .bias = bias, .parameter = weight};
  CHECK(fused->linear(input, layer).equal(PlainLinearOperations().linear(input, layer)));
}

TEST_CASE("a plan for an assumed GPU uses GPU kernels if the build has them") {
  Recipe recipe;
  recipe.device = "cuda";
  recipe.optimizations.fused_kernels = true;
  const Plan plan = make_plan(recipe, assume(Machine{}, "gpus=1,arch=sm_90,memory_gib=80").machine);
  REQUIRE(plan.device.is_cuda());
  REQUIRE(plan.switches.size() == 1);
  const Outcome& outcome = plan.switches[0].outcome;
  CHECK(outcome.has_effect == built_for_cuda());
  if (!outcome.has_effect) CHECK_THAT(outcome.text, ContainsSubstring("TRAINOPT_CUDA"));
}

TEST_CASE("the fused language head has the plain one's loss, gradients and types, under autocast too") {
  at::manual_seed(27);
  const PlainLanguageHeadOperations plain;
  const auto fused = fused_kernels::make_fused_language_head(kernels::cpu_linear_cross_entropy_kernels());
  const at::Tensor hidden = at::randn({3, 50, 16}), weight = at::randn({203, 16}) / 4;
  at::Tensor target = at::randint(203, {3, 50}, at::kLong);
  target.select(1, 49).fill_(kIgnoredTarget);
  for (const auto autocast : {std::optional<at::ScalarType>(), std::optional(at::kBFloat16)})
    for (const bool has_copy : {false, true}) {
      if (has_copy && !autocast) continue;
      const auto run = [&](const LanguageHeadOperations& operations) {
        const at::Tensor x = hidden.detach().clone().requires_grad_(),
                         w = weight.to(has_copy ? *autocast : at::kFloat, false, true).requires_grad_();
        const AutocastGuard guard(at::kCPU, autocast);
        const at::Tensor loss = operations.loss(x, w, target);
        auto all = torch::autograd::grad({loss}, {x, w});
        all.push_back(loss.detach());
        const at::NoGradGuard evaluation;
        all.push_back(operations.loss(x, w, target));
        return all;
      };
      const auto got = run(*fused), wanted = run(plain);
      for (size_t i = 0; i < got.size(); ++i) check_near(got[i], wanted[i], autocast ? 8e-3 : 1e-6);
    }
}

TEST_CASE("fused_kernels trains a language model as the plain plan does, without all logits") {
  Recipe recipe = language_recipe();
  Receipt receipt;
  const auto losses = [&] {
    const Plan plan = plan_of(recipe);
    Rows rows;
    Trainer trainer(plan, {}, rows, never_stopped());
    trainer.run();
    if (recipe.optimizations.fused_kernels) receipt = receipt_of(plan, trainer);
    return rows.losses();
  };
  const auto plain = losses();
  const int64_t plain_bytes = forecast_memory(plan_of(recipe)).breakdown.total();
  recipe.optimizations.fused_kernels = true;
  const auto fused = losses();
  REQUIRE(fused.size() == plain.size());
  CHECK(plain.front() != plain.back());
  for (size_t i = 0; i < plain.size(); ++i) CHECK(fused[i] == Approx(plain[i]).epsilon(1e-4));
  CHECK(receipt.effective);
  CHECK(receipt.reason.empty());
  // 16 · 32 tokens, 1003 classes: logits and their gradient, less a quarter of the tokens in rows of 1008.
  CHECK_THAT(receipt.observed, ContainsSubstring("1 of 1 language heads fused, 1 of their gradients; logits in 4 "
                                                 "pieces: 3.4 MiB not allocated, 504.0 KiB allocated"));
  const int64_t fused_bytes = forecast_memory(plan_of(recipe)).breakdown.total();
  CHECK(plain_bytes - fused_bytes > 16 * 32 * 1003 * 4);
  recipe.optimizations.amp.on = true;
  CHECK(forecast_memory(plan_of(recipe)).breakdown.total() < fused_bytes);
}

TEST_CASE("the receipt of fused_kernels names a language head that is not fused") {
  Recipe recipe = language_recipe();
  recipe.optimizations.fused_kernels = true;
  Plan plan = plan_of(recipe);
  plan.operations.language_head = Slot<LanguageHeadOperations>(
      "language head", "plain", [](const BuildContext&) { return std::make_unique<PlainLanguageHeadOperations>(); });
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped());
  trainer.run();
  const Receipt receipt = receipt_of(plan, trainer);
  CHECK_THAT(receipt.observed, ContainsSubstring("0 of 1 language heads fused"));
  CHECK_FALSE(receipt.reason.empty());
}

TEST_CASE("gradcheck passes the fused language head in every type") {
  for (const auto type : std::vector<std::optional<amp::Type>>{{}, amp::Type::bfloat16, amp::Type::float16}) {
    Recipe recipe = language_recipe();
    recipe.debug.gradcheck = recipe.optimizations.fused_kernels = true;
    if (type) recipe.optimizations.amp = {true, {.dtype = *type}};
    const Plan plan = plan_of(recipe);
    Rows rows;
    Trainer(plan, {}, rows, never_stopped());
    REQUIRE(plan.reports.size() == 1);
    bool checked = false;
    for (const auto& row : plan.reports[0].second()) {
      INFO(json_text(row));
      CHECK(row.at("passed") == true);
      checked |= row.at("operation") == "linear_cross_entropy";
    }
    CHECK(checked);
  }
}

}  // namespace fused_kernels_tests
