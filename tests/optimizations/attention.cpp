// What the plan decides about attention, and what the receipt says.
#include "model/operations.h"
#include "recipe/make_plan.h"
#include "support/catch.h"

namespace attention_tests {

using namespace trainopt;

namespace {

Recipe vit_recipe(AttentionKernel attention) {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model = {.name = ModelKind::vit, .patch = 8, .layers = 1, .heads = 2, .width = 8};
  recipe.optimizations.attention = attention;
  return recipe;
}

Plan plan_of(const Recipe& recipe) { return make_plan(recipe, Machine{.cpu = "test", .cores = 2}); }

StepTrace seen(const std::string& operation, int64_t calls) {
  StepTrace trace;
  trace.step = 2;
  trace.operations[{.name = operation, .inputs = {}, .range = "", .grad_mode = true}] = calls;
  return trace;
}

}  // namespace

TEST_CASE("attention is math in a plain plan, and libtorch's choice by default") {
  const Plan chosen = plan_of(vit_recipe(AttentionKernel::automatic));
  REQUIRE(chosen.switches.size() == 1);
  CHECK(chosen.switches.front().name == "attention");
  CHECK(chosen.switches.front().requested == "auto");
  CHECK(chosen.backend.attention == AttentionKernel::automatic);
  const Plan plain = plan_of(vit_recipe(AttentionKernel::math));
  CHECK(plain.switches.empty());
  CHECK(plain.backend.attention == AttentionKernel::math);
  CHECK(switched_off("attention") == "optimizations.attention=math");
  CHECK(switched_off("amp") == "optimizations.amp=null");
}

TEST_CASE("the receipt names the implementation of attention that ran, and why another did") {
  const Plan wants_flash = plan_of(vit_recipe(AttentionKernel::flash));
  CHECK(wants_flash.backend.attention == AttentionKernel::flash);
  const auto receipt = wants_flash.switches.front().outcome.receipt;
  const Receipt as_wanted = receipt(seen("aten::_scaled_dot_product_flash_attention_for_cpu", 12));
  CHECK(as_wanted.effective);
  CHECK(as_wanted.observed == "12 attentions by flash");
  CHECK(as_wanted.reason == "");
  const Receipt other = receipt(seen("aten::_scaled_dot_product_attention_math", 12));
  CHECK_FALSE(other.effective);
  CHECK(other.observed == "12 attentions by math");
  CHECK(other.reason == "libtorch's flash does not support the types and sizes of this model's attention");

  const Plan chooses = plan_of(vit_recipe(AttentionKernel::automatic));
  CHECK(chooses.switches.front().outcome.receipt(seen("aten::_scaled_dot_product_efficient_attention", 1)).effective);
  CHECK_FALSE(chooses.switches.front().outcome.receipt(seen("aten::_scaled_dot_product_attention_math", 1)).effective);
}

TEST_CASE("implementations of attention without effect say why") {
  const auto reason = [](const Recipe& recipe) {
    const Plan plan = plan_of(recipe);
    REQUIRE(plan.switches.size() == 1);
    CHECK_FALSE(plan.switches.front().outcome.has_effect);
    CHECK(plan.backend.attention == AttentionKernel::automatic);
    return plan.switches.front().outcome.text;
  };
  CHECK_THAT(reason(vit_recipe(AttentionKernel::cudnn)), ContainsSubstring("cudnn needs an NVIDIA GPU"));
  CHECK_THAT(reason(vit_recipe(AttentionKernel::efficient)), ContainsSubstring("on CPUs libtorch has flash and math"));
  Recipe resnet;
  resnet.device = "cpu";
  CHECK(plan_of(resnet).switches.empty());
  resnet.optimizations.attention = AttentionKernel::flash;
  CHECK(reason(resnet) == "the resnet18 has no attention");
}

}  // namespace attention_tests
