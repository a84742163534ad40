// Optimizations find their work by the layers that a network has, never by its name: what they do does not change if
// the plan has another network's name, and they find all that a network of nobody's has.
#include "model/transformer_block.h"
#include "optimizations/activation_checkpointing/activation_checkpointing.h"
#include "optimizations/channels_last/channels_last.h"
#include "optimizations/fused_kernels/fused_kernels.h"
#include "recipe/make_plan.h"
#include "support/catch.h"
#include "support/small_gpt2.h"
#include "support/small_resnet.h"

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

// A network that no catalogue has: residual blocks, then a transformer's block on the pixels.

namespace {

class PixelBlock : public Unit {
 public:
  explicit PixelBlock(Builder& builder)
      : block_(builder, {.name = "pixels",
                         .ln_1 = {builder, "pixels.ln_1", kWidth, 1e-6},
                         .attention = {builder, linear(builder, "in", 1, 3), linear(builder, "out", 1, 1), 2, {}},
                         .ln_2 = {builder, "pixels.ln_2", kWidth, 1e-6},
                         .mlp_in = linear(builder, "mlp_in", 1, 4),
                         .mlp_out = linear(builder, "mlp_out", 4, 1),
                         .gelu = GeluForm::exact,
                         .dropout = 0}) {}
  std::string name() const override { return "pixels"; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    const at::Tensor pixels = input.flatten(2).transpose(1, 2).contiguous();
    return block_.forward(pixels, context).transpose(1, 2).reshape(input.sizes());
  }
  SampleShape shape_after(const SampleShape& input, double& flops) const override {
    block_.shape_after({input[1] * input[2], input[0]}, flops);
    return input;
  }

 private:
  static constexpr int64_t kWidth = 16;
  static Linear linear(Builder& builder, const std::string& name, int64_t in, int64_t out) {
    return {builder, "pixels." + name, in * kWidth, out * kWidth};
  }
  TransformerBlock block_;
};

Model nobodys_network(const ModelConfig&, const InputShape& input, at::Device device, uint64_t seed,
                      const UnitRange& held) {
  Builder builder(device, seed, held);
  builder.add<SmallStem>();
  builder.add<SmallBlock>("layer1.0", 8, 8);
  builder.add<SmallBlock>("layer2.0", 8, 16);
  builder.add<PixelBlock>();
  builder.add<SmallHead>();
  return {std::move(builder), {input.channels, input.height, input.width}};
}

void plant_network(Plan& plan) {
  plan.model.make = nobodys_network;
  plan.model.describe(plan.model.shapes());
  plan.stages.parameters = plan.model.parameters;
}

/// What two steps with the optimizations of `apply` are and leave behind.
struct TwoSteps {
  std::vector<double> losses;
  std::map<std::string, std::string> receipts;
};
TwoSteps train(const std::function<void(Plan&)>& apply) {
  Plan plan = small_plan(2);
  plant_network(plan);
  apply(plan);
  Rows rows;
  Trainer trainer(plan, {}, rows, never_stopped(), {}, make_single_communicator());
  trainer.run();
  TwoSteps result{.losses = rows.losses(), .receipts = {}};
  for (const SwitchReceipt& each : receipts(plan.switches, trainer.outcome().trace))
    result.receipts[each.name] = each.receipt.observed;
  return result;
}

}  // namespace

TEST_CASE("every optimization finds what it works on in a network of nobody's") {
  const Machine cpu{.cpu = "test", .cores = 2};
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model.name = ModelKind::mlp;  // which has none of all this
  Plan plan = make_plan(recipe, cpu);
  plant_network(plan);
  recipe.optimizations.attention = AttentionKernel::math;
  const auto found = unused_switches(recipe, plan);
  const auto text_of = [&](const std::string& change) {
    for (const UnusedSwitch& each : found)
      if (each.change == "optimizations." + change) return each.text;
    return std::string("none");
  };
  CHECK_THAT(text_of("fused_kernels=true"),
             Catch::Matchers::StartsWith(
                 "layer norm with the addition before it and GELU with the bias before it (one pass each way); "
                 "batch-norm fused with addition"));
  CHECK_THAT(text_of("winograd=true"), ContainsSubstring("3×3 convolutions"));
  CHECK_THAT(text_of("channels_last=true"), ContainsSubstring("NHWC"));
  CHECK_THAT(text_of("attention=auto"), ContainsSubstring("libtorch chooses"));
  CHECK_THAT(text_of("activation_checkpointing=true"), Catch::Matchers::StartsWith("3 of 5 units"));
}

TEST_CASE("a network of nobody's trains with the optimizations that it gets, as it does without") {
  const TwoSteps plain = train([](Plan&) {});
  const TwoSteps found = train([](Plan& plan) {
    const auto add = [&](const Info& info, Outcome outcome) {
      plan.switches.push_back({info.name, "true", std::move(outcome)});
    };
    add(channels_last::kInfo, channels_last::apply(plan));
    add(fused_kernels::kInfo, fused_kernels::apply(plan));
    add(activation_checkpointing::kInfo, activation_checkpointing::apply(plan, {}));
  });
  for (size_t step = 0; step < plain.losses.size(); ++step)
    CHECK(found.losses[step] == Approx(plain.losses[step]).epsilon(fused_kernels::kInfo.tolerance));
  CHECK_THAT(found.receipts.at("fused_kernels"),
             Catch::Matchers::StartsWith(
                 "4 of 4 layer norms fused, 2 of their gradients; 2 of 2 GELUs fused, 1 of their gradients; "
                 "2 of 2 attentions fused, 1 of their gradients; 11 of 11 batch-norms fused"));
  CHECK(found.receipts.at("channels_last") == "11 of 11 convolutions read NHWC");
  CHECK_THAT(found.receipts.at("activation_checkpointing"),
             Catch::Matchers::StartsWith("3 units computed again in backward"));
}

}  // namespace by_trait_test
