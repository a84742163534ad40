// TF32 itself needs a GPU; these tests cover the plan's decision and the wording of the receipt.
#include "recipe/make_plan.h"
#include "support/catch.h"

namespace tf32_tests {

using namespace trainopt;

namespace {

Outcome planned(const char* machine) {
  Recipe recipe;
  recipe.device = "cuda";
  recipe.optimizations.tf32 = true;
  const Plan plan = make_plan(recipe, assume(Machine{}, machine).machine);
  REQUIRE(plan.switches.size() == 1);
  CHECK(plan.backend.allow_tf32 == plan.switches.front().outcome.has_effect);
  return plan.switches.front().outcome;
}

StepTrace step_with(c10::ScalarType type, bool allowed, double error = 3e-4) {
  const TracedTensor numbers{.type = type, .sizes = {2, 2}};
  StepTrace trace;
  trace.step = 2;
  trace.backend.allow_tf32 = allowed;
  trace.float32_product_error = error;
  trace.operations[{.name = "aten::mm", .inputs = {numbers, numbers}}] = 3;
  trace.operations[{.name = "aten::convolution_backward", .inputs = {numbers}}] = 1;
  return trace;
}

}  // namespace

TEST_CASE("TF32 needs a GPU from sm_80") {
  CHECK_FALSE(planned("gpus=1,arch=sm_75").has_effect);
  CHECK(planned("gpus=1,arch=sm_80").has_effect);
}

TEST_CASE("the receipt of tf32 counts the float32 operations that may use it") {
  const MakeReceipt receipt = planned("gpus=1,arch=sm_80").receipt;
  const Receipt used = receipt(step_with(c10::kFloat, true));
  CHECK(used.observed ==
        "TF32 allowed for 4 float32 convolutions and matrix products; a test product had a relative error of 3e-04");
  CHECK(used.effective);
  const Receipt forbidden = receipt(step_with(c10::kFloat, false));
  CHECK(forbidden.observed == "TF32 not allowed for 4 float32 convolutions and matrix products");
  CHECK(forbidden.reason == "another setting disabled it");
  const Receipt unused = receipt(step_with(c10::kBFloat16, true));
  CHECK_FALSE(unused.effective);
  CHECK(unused.reason == "no convolution or matrix product ran in float32");
  const Receipt ignored = receipt(step_with(c10::kFloat, true, 1e-7));
  CHECK_FALSE(ignored.effective);
  CHECK(ignored.reason == "the hardware computed the test product in full float32");
}

}  // namespace tf32_tests
