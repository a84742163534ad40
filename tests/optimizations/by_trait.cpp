// Optimizations find their work by the layers that a network has, never by its name: what they do does not change if
// the plan has another network's name.
#include "recipe/make_plan.h"
#include "support/catch.h"
#include "support/small_gpt2.h"

#include <fmt/format.h>

using namespace trainopt::test;

namespace by_trait_test {

using namespace trainopt;

namespace {

/// A name that no network below has.
constexpr ModelKind kWrongName = ModelKind::convnext_tiny;

Recipe recipe_of(ModelKind kind) {
  Recipe recipe;
  if (kind == ModelKind::gpt2)
    use_gpt2(recipe);
  else
    recipe.model = {.name = kind, .patch = kind == ModelKind::vit ? 8 : 16};
  return recipe;
}

/// What the plan would say of the switches, without activation_checkpointing: it counts the units of the network that
/// it builds by the plan's name.
std::string told(const std::vector<UnusedSwitch>& switches) {
  std::string all;
  for (const auto& [change, text] : switches)
    if (!change.starts_with("optimizations.activation_checkpointing=")) all += fmt::format("{}: {}\n", change, text);
  return all;
}

}  // namespace

TEST_CASE("every optimization does the same for a network with a wrong name") {
  const Machine cpu{.cpu = "test", .cores = 2};
  const Machine gpu = assume(cpu, "gpus=1,arch=sm_90,memory_gib=80").machine;
  for (const ModelKind kind : {ModelKind::resnet18, ModelKind::vit, ModelKind::gpt2})
    for (const Machine& machine : {cpu, gpu}) {
      CAPTURE(word_of(kind), machine.sm);
      Recipe recipe = recipe_of(kind);
      recipe.device = machine.sm > 0 ? "cuda" : "cpu";
      const Plan known = make_plan(recipe, machine);
      Plan renamed = known;
      renamed.model.config.name = kWrongName;
      const std::string found = told(unused_switches(recipe, renamed));
      CHECK(found == told(unused_switches(recipe, known)));
      CHECK_THAT(found, ContainsSubstring("optimizations.fused_kernels=true") || ContainsSubstring("amp"));
    }
}

TEST_CASE("fused kernels take the layer norms of a network without attention") {
  Recipe recipe = recipe_of(ModelKind::mlp);
  recipe.device = "cpu";
  Plan plan = make_plan(recipe, Machine{.cpu = "test", .cores = 2});
  plan.model.config.name = kWrongName;
  plan.model.layers.layer_norms = 3;
  const std::string found = told(unused_switches(recipe, plan));
  CHECK_THAT(found, ContainsSubstring("layer norm with the addition before it (one pass each way)"));
}

}  // namespace by_trait_test
