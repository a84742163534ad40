#include "recipe/program_of_plan.h"

#include "recipe/make_plan.h"
#include "support/catch.h"

namespace program_of_plan_tests {

using namespace trainopt;
using Catch::Matchers::Contains;

namespace {

Recipe recipe_of(const std::string& program, int64_t side = 8) {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model = {.name = ModelKind::exported, .path = std::string(MODEL_FILES) + "/" + program + ".pt2"};
  recipe.data.size = 16;
  recipe.data.batch_size = 8;
  recipe.data.transforms = {ResizeConfig{.shorter_side = side}, NormalizeConfig{}};
  recipe.train.max_steps = 1;
  return recipe;
}

Plan plan_of(const Recipe& recipe) { return make_plan(recipe, Machine{.cpu = "test", .cores = 1}); }

std::string refusal_of(const Recipe& recipe) {
  try {
    plan_of(recipe);
  } catch (const UserError& error) {
    return error.what();
  }
  return "not refused";
}

}  // namespace

TEST_CASE("num_classes: auto is what the data has, for a built-in network and a new last layer") {
  Recipe recipe = recipe_of("net");
  recipe.model.num_classes = AutoOr<int64_t>();
  recipe.model.replace_head = true;
  CHECK(plan_of(recipe).model.config.num_classes == 10);
  CHECK(plan_of(recipe).model.parameters == 1498);
  recipe.model.num_classes = 10;  // a number like any other
  CHECK(plan_of(recipe).model.parameters == 1498);
  recipe.model.num_classes = 12;
  CHECK(plan_of(recipe).model.parameters == 1498 + 2 * 9);
  recipe.model.num_classes = 9;
  CHECK_THAT(refusal_of(recipe), Contains("model.num_classes is 9, and the data has 10 classes; set it to auto"));
  recipe.model = {.name = ModelKind::mlp, .num_classes = AutoOr<int64_t>(), .hidden = {4}};
  CHECK(plan_of(recipe).model.config.num_classes == 10);
}

TEST_CASE("the task of a plan is that of its program") {
  CHECK(ProgramOfPlan(recipe_of("net").model).task() == ModelTask::classification);
  CHECK(plan_of(recipe_of("net")).model.task == ModelTask::classification);
  CHECK(plan_of(recipe_of("own-loss")).model.task == ModelTask::loss);
  CHECK(plan_of(recipe_of("own-loss")).task.describe() == "the loss that the program computes");
}

TEST_CASE("what acts on another loss, and a number that a program does not give, are refused") {
  Recipe recipe = recipe_of("own-loss");
  recipe.train.label_smoothing = 0.1;
  CHECK_THAT(refusal_of(recipe), Contains("train.label_smoothing") && Contains("computes its own loss"));
  for (const auto& [program, why] :
       {std::pair{"only-loss", "so that it returns (loss, logits)"}, {"own-loss", "not refused"}}) {
    recipe = recipe_of(program);
    recipe.train.target.top1_pct = 90;
    CHECK_THAT(refusal_of(recipe), Contains(why));
  }
  recipe = recipe_of("own-loss");
  recipe.train.target.perplexity = 3;
  CHECK_THAT(refusal_of(recipe), Contains("train.target.perplexity") && Contains("use loss or top1_pct"));
}

}  // namespace program_of_plan_tests
