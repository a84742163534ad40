// debug.gradcheck with the GPU kernels: no alarm in any type, at sizes with full and partial blocks.
#include "recipes.h"
#include "support/catch.h"

using namespace trainopt;
using namespace trainopt::test;

TEST_CASE("the gradients of the GPU kernels pass debug.gradcheck") {
  for (const StemKind stem : {StemKind::cifar, StemKind::imagenet})
    for (const auto type : std::vector<std::optional<amp::Type>>{{}, amp::Type::bfloat16, amp::Type::float16})
      for (const bool tf32 : {false, true}) {
        Recipe recipe = small_recipe("cuda");
        recipe.model.stem = stem;
        recipe.data.transforms[0] = ResizeConfig{.exact = {41, 33}};
        recipe.optimizations.fused_kernels = recipe.optimizations.fused_optimizer = true;
        recipe.optimizations.tf32 = tf32;
        if (type) recipe.optimizations.amp = {true, {.dtype = *type}};
        recipe.debug.gradcheck = true;
        const Plan plan = make_plan(recipe, detect_machine());
        Rows rows;
        Trainer(plan, {}, rows, never_stopped());  // throws if an operation fails
        const Json report = plan.reports.at(0).second();
        CHECK(report.size() >= 10);
        for (const auto& row : report) {
          INFO(json_text(row));
          CHECK(row.at("passed") == true);
        }
      }
}
