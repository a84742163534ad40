// The switch fused_kernels on transformers: its layer norms and GELUs. tests/kernels tests the kernels.
#include "device/autocast.h"
#include "kernels/norm_checks.h"
#include "model/builder.h"
#include "optimizations/fused_kernels/fused_operations.h"
#include "recipe/make_plan.h"
#include "support/autograd.h"
#include "support/plans.h"

#include <ATen/Parallel.h>

namespace fused_transformers_tests {

using namespace trainopt;
using namespace trainopt::test;

namespace {

Recipe vit_recipe() {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model = {.name = ModelKind::vit, .patch = 4, .layers = 2, .heads = 2, .width = 40};
  recipe.data.dataset = DatasetKind::fake_cifar10;
  recipe.data.size = 64;
  recipe.data.batch_size = 8;
  recipe.data.transforms = {ResizeConfig{.exact = {16, 16}}, NormalizeConfig{}};
  recipe.optimizer = SgdConfig{.lr = 0.05};
  recipe.train.max_steps = 3;
  return recipe;
}

Recipe gpt2_recipe() {
  Recipe recipe = vit_recipe();
  recipe.model = {.name = ModelKind::gpt2, .layers = 2, .heads = 2, .width = 24, .context = 32, .vocabulary = 61};
  recipe.data.dataset = DatasetKind::synthetic;
  recipe.data.transforms = {};
  recipe.optimizer = SgdConfig{.lr = 0.5};
  return recipe;
}

Plan planned(const Recipe& recipe) {
  at::set_num_threads(2);  // fewer than samples × heads: attention is fused
  return make_plan(recipe, Machine{.cpu = "test", .cores = 2});
}

const Receipt& receipt_of(const char* name, const std::vector<SwitchReceipt>& all) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.name == name; });
  REQUIRE(found != all.end());
  return found->receipt;
}
const Receipt& of_fused_kernels(const std::vector<SwitchReceipt>& all) { return receipt_of("fused_kernels", all); }

}  // namespace

TEST_CASE("fused layer norms and GELUs have the results, types and gradients of plain ones, under autocast too") {
  at::manual_seed(51);
  const auto kernels = fused_kernels::row_kernels_for(at::kCPU);
  const auto fused_norm = fused_kernels::make_fused_layer_norm(kernels);
  const auto fused_gelu = fused_kernels::make_fused_gelu(kernels);
  Builder builder(at::kCPU, 1);
  const LayerNorm norm(builder, "norm", 24, 1e-6);
  const Linear linear(builder, "linear", 24, 31);
  {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& each : {norm.weight, norm.bias, linear.bias}) each.copy_(at::randn(each.sizes()));
  }
  for (const auto autocast : {std::optional<at::ScalarType>(), std::optional(at::kBFloat16)})
    for (const GeluForm form : {GeluForm::exact, GeluForm::tanh}) {
      const auto run = [&](const LayerNormOperations& norms, const GeluOperations& gelus) {
        at::manual_seed(52);
        const at::Tensor x = at::randn({3, 5, 24}).requires_grad_(),
                         branch = at::randn({3, 5, 24}).to(autocast.value_or(at::kFloat)).requires_grad_();
        const auto forward = [&] {
          const AutocastGuard guard(at::kCPU, autocast);
          const auto [sum, normalised] = norms.add_layer_norm(x, norms.layer_norm(branch, norm), norm);
          return std::vector<at::Tensor>{sum, normalised.to(at::kFloat), gelus.linear_gelu(normalised, linear, form)};
        };
        auto all = forward();
        const auto gradients = torch::autograd::grad({all[0].square().sum() + all[2].to(at::kFloat).sin().sum()},
                                                     {x, branch, norm.weight, norm.bias, linear.weight, linear.bias});
        all.insert(all.end(), gradients.begin(), gradients.end());
        const at::NoGradGuard evaluation;
        for (at::Tensor& each : forward()) all.push_back(each);
        return all;
      };
      const auto got = run(*fused_norm, *fused_gelu), wanted = run(PlainLayerNormOperations(), PlainGeluOperations());
      REQUIRE(got.size() == wanted.size());
      for (size_t i = 0; i < got.size(); ++i) {
        INFO(i << " " << autocast.has_value());
        check_near(got[i].detach(), wanted[i].detach(), autocast ? 2e-2 : 1e-5);
      }
    }
}

TEST_CASE("fused_kernels trains transformers as the plain plan does, and its receipt counts layer norms and GELUs") {
  for (Recipe recipe : {vit_recipe(), gpt2_recipe()}) {
    std::vector<SwitchReceipt> found;
    const auto losses = [&] {
      const Plan plan = planned(recipe);
      Rows rows;
      Trainer trainer(plan, {}, rows, never_stopped());
      trainer.run();
      found = receipts(plan.switches, trainer.outcome().trace);
      return rows.losses();
    };
    const auto plain = losses();
    recipe.optimizations.fused_kernels = true;
    const auto fused = losses();
    CHECK(plain.front() != plain.back());
    REQUIRE(fused.size() == plain.size());
    for (size_t step = 0; step < plain.size(); ++step) CHECK(fused[step] == Approx(plain[step]).epsilon(1e-4));
    const Receipt& receipt = of_fused_kernels(found);
    INFO(receipt.observed);
    CHECK(receipt.effective);
    CHECK(receipt.reason.empty());
    CHECK(receipt.observed.rfind("5 of 5 layer norms fused, 5 of their gradients; "
                                 "2 of 2 GELUs fused, 2 of their gradients; "
                                 "2 of 2 attentions fused, 2 of their gradients; ",
                                 0) == 0);
  }
}

TEST_CASE("fused_kernels leaves attention to the implementation that the recipe names, and to dropout") {
  struct Case {
    AttentionKernel wanted;
    double dropout;
    const char* ran;
  };
  for (const auto& [wanted, dropout, ran] :
       {Case{AttentionKernel::automatic, 0, "fused_kernels"}, Case{AttentionKernel::flash, 0, "flash"},
        Case{AttentionKernel::math, 0, "math"}, Case{AttentionKernel::automatic, 0.1, "math"}}) {
    Recipe recipe = gpt2_recipe();
    recipe.model.dropout = dropout;
    recipe.optimizations.attention = wanted;
    recipe.optimizations.fused_kernels = true;
    const Plan plan = planned(recipe);
    Rows rows;
    Trainer trainer(plan, {}, rows, never_stopped());
    trainer.run();
    const auto found = receipts(plan.switches, trainer.outcome().trace);
    const bool fused = std::string(ran) == "fused_kernels";
    INFO(ran << " " << of_fused_kernels(found).observed);
    CHECK((of_fused_kernels(found).observed.find("attentions fused") != std::string::npos) == fused);
    if (std::string(ran) == "math") continue;  // attention is off
    const Receipt& of_attention = receipt_of("attention", found);
    CHECK(of_attention.effective);
    CHECK(of_attention.observed == std::string("2 attentions by ") + ran);
  }
}

TEST_CASE("the receipt of fused_kernels names GELUs that are not fused") {
  Recipe recipe = vit_recipe();
  recipe.optimizations.fused_kernels = true;
  Plan plan = planned(recipe);
  plan.operations.gelu = Slot<GeluOperations>(
      "GELU", "plain", [](const BuildContext&) { return std::make_unique<PlainGeluOperations>(); });
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped());
  trainer.run();
  const auto found = receipts(plan.switches, trainer.outcome().trace);
  CHECK_THAT(of_fused_kernels(found).observed, ContainsSubstring("0 of 2 GELUs fused"));
  CHECK(of_fused_kernels(found).reason == "some GELUs were not fused");
}

TEST_CASE("gradcheck passes fused layer norms and GELUs in every type") {
  for (const auto type : std::vector<std::optional<amp::Type>>{{}, amp::Type::bfloat16, amp::Type::float16})
    for (Recipe recipe : {vit_recipe(), gpt2_recipe()}) {
      recipe.debug.gradcheck = recipe.optimizations.fused_kernels = true;
      if (type) recipe.optimizations.amp = {true, {.dtype = *type}};
      const Plan plan = planned(recipe);
      Rows rows;
      Trainer(plan, {}, rows, never_stopped());
      REQUIRE(plan.reports.size() == 1);
      std::set<std::string> checked;
      for (const auto& row : plan.reports[0].second()) {
        INFO(json_text(row));
        CHECK(row.at("passed") == true);
        checked.insert(row.at("operation").get<std::string>());
      }
      CHECK(checked.contains("layer_norm"));
      CHECK(checked.contains("add_layer_norm"));
      CHECK(checked.contains(recipe.model.name == ModelKind::vit ? "linear_gelu" : "linear_gelu_tanh"));
    }
}

}  // namespace fused_transformers_tests
