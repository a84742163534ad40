#include "model/imported/found_layers.h"

#include "device/device.h"
#include "device/tensor.h"
#include "model/imported/imported.h"
#include "model/imported/instruction.h"
#include "model/imported/source.h"
#include "model/imported/written_layers.h"
#include "model/model.h"
#include "support/catch.h"

#include <fmt/ranges.h>

using namespace trainopt;
using Catch::Matchers::Contains;

namespace {

ModelConfig program_named(const std::string& name) {
  ModelConfig config;
  config.name = ModelKind::exported;
  config.path = std::string(MODEL_FILES) + "/" + name + ".pt2";
  return config;
}

Model model_named(const std::string& name, const std::string& units = "blocks") {
  ModelConfig config = program_named(name);
  config.units = units;
  return make_model(config, program_facts(config).input, at::kCPU, /*seed=*/0);
}

/// The program as one unit, after `change`; "layer.batch_norm+relu" for a layer with what follows it.
std::vector<std::string> targets_of(
    const std::string& name, const std::function<void(ProgramGraph&)>& change = [](ProgramGraph&) {}) {
  ProgramSource source(program_named(name));
  change(source.graph);
  ProgramNodes nodes(source.graph.nodes.begin(), source.graph.nodes.end());
  const std::vector<NodeRange> whole{{.first = 0,
                                      .end = nodes.size(),
                                      .name = {},
                                      .input = source.division.input,
                                      .output = std::get<ProgramValue>(source.graph.outputs.front())}};
  const AliasSets aliases(source.graph);
  find_layers(nodes, {.graph = source.graph,
                      .aliases = aliases,
                      .names = source.names,
                      .units = whole,
                      .constant = [&](int64_t value) { return source.constant(value); }});
  std::vector<std::string> targets;
  for (const auto& node : nodes) {
    if (!node) continue;
    targets.push_back(node->target);
    for (const auto& input : node->inputs)
      if (input.name == "relu" || input.name == "pool" || input.name == "residual")
        if (node->target == kBatchNormLayer) targets.back() += "+" + input.name;
  }
  return targets;
}

/// Counts the calls of each slot, and passes them on to the plain operations.
class CountedOperations : public ForwardingOperations {
 public:
  mutable std::map<std::string, int> calls;

  at::Tensor linear(const at::Tensor& input, const LinearTensors& layer) const override {
    ++calls["linear"];
    return ForwardingOperations::linear(input, layer);
  }
  at::Tensor forward(const Conv2d::Shape& shape, const at::Tensor& input, const at::Tensor& weight) const override {
    ++calls["convolution"];
    return ForwardingOperations::forward(shape, input, weight);
  }
  at::Tensor batch_norm_add_relu(const at::Tensor& input, const BatchNorm2d& norm, const at::Tensor& residual,
                                 const ForwardContext& context) const override {
    ++calls["batch_norm_add_relu"];
    return ForwardingOperations::batch_norm_add_relu(input, norm, residual, context);
  }
  at::Tensor stem_pool(const at::Tensor& input, const BatchNorm2d& norm, const ForwardContext& context) const override {
    ++calls["stem_pool"];
    return ForwardingOperations::stem_pool(input, norm, context);
  }
  at::Tensor head(const at::Tensor& input, const Linear& linear, const ForwardContext& context) const override {
    ++calls["head"];
    return ForwardingOperations::head(input, linear, context);
  }
  at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const AttentionOptions& options, const ForwardContext& context) const override {
    ++calls["attention"];
    return ForwardingOperations::attention(query, key, value, options, context);
  }
  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& target) const override {
    ++calls["loss"];
    return ForwardingOperations::loss(hidden, weight, target);
  }
};

size_t node_at(const ProgramGraph& graph, std::string_view target, size_t nth = 0) {
  for (size_t at = 0; at < graph.nodes.size(); ++at)
    if (graph.nodes[at].target == target && nth-- == 0) return at;
  FAIL("the program has no " << target);
  return 0;
}

}  // namespace

TEST_CASE("layers of a convolutional program are found with what follows them") {
  CHECK(targets_of("residual") == std::vector<std::string>{"layer.convolution", "layer.batch_norm+relu+pool",
                                                           "layer.convolution", "layer.batch_norm+relu",
                                                           "layer.convolution", "layer.batch_norm+relu+residual",
                                                           "layer.head"});
  const LayerCounts layers = model_named("residual").layer_counts();
  CHECK(layers.convolutions_3x3 == 3);
  CHECK(layers.batch_norms == 3);
  REQUIRE(layers.linears.size() == 1);
  CHECK(layers.linears[0] == LinearSize{.in = 32, .out = 10});
}

TEST_CASE("layers of a transformer's program are found, and its head is a language model's") {
  const auto targets = targets_of("text");
  const auto count = [&](std::string_view target) { return std::count(targets.begin(), targets.end(), target); };
  CHECK(count(kLayerNormLayer) == 1);  // before it positions are added, which all samples share
  CHECK(count(kAddLayerNormLayer) == 2);
  CHECK(count(kLinearGeluLayer) == 1);
  CHECK(count(kAttentionLayer) == 1);
  CHECK(count(kLinearLayer) == 4);
  const LayerCounts layers = model_named("text").layer_counts();
  CHECK(layers.language_head);
  CHECK(layers.linears.size() == 4);  // without the head
  CHECK_THAT(layers.found, Contains("3 of 3 layer norms"));
}

TEST_CASE("a program calls the slots of its layers") {
  const auto calls_of = [](const std::string& name, const std::string& units, const at::Tensor& input,
                           const at::Tensor& target) {
    const auto counted = std::make_shared<CountedOperations>();
    Model model = model_named(name, units);
    model.set_operations(all_through(counted));
    for (const bool training : {true, false}) {
      const at::AutoGradMode mode(training);
      model.forward(input, {.training = training, .generator = make_generator(at::kCPU, 1), .target = target});
    }
    return counted->calls;
  };
  using Calls = std::map<std::string, int>;
  CHECK(calls_of("residual", "conv1", at::ones({2, 3, 16, 16}), {}) ==
        Calls{{"convolution", 6}, {"stem_pool", 2}, {"batch_norm_add_relu", 2}, {"head", 2}, {"linear", 2}});
  const at::Tensor tokens = at::arange(16, at::kLong).view({2, 8});
  CHECK(calls_of("text", "blocks", tokens, tokens) == Calls{{"linear", 8}, {"attention", 2}, {"loss", 2}});
  CHECK(calls_of("text", "blocks", tokens, {}) == Calls{{"linear", 8}, {"attention", 2}});
}

TEST_CASE("an operation whose result others use too is not taken into a layer") {
  const auto keep_relu = targets_of("residual", [](ProgramGraph& graph) {
    // A second user of what the stem's batch-norm returns.
    const ProgramValue normalised = first_output(graph.nodes[node_at(graph, "torch.ops.aten.batch_norm.default")]);
    for (auto& input : graph.nodes[node_at(graph, "torch.ops.aten.add_.Tensor", 3)].inputs)
      if (input.name == "other") input.argument.items = {normalised};
  });
  CHECK(std::count(keep_relu.begin(), keep_relu.end(), "layer.batch_norm") >= 1);
  CHECK(std::count(keep_relu.begin(), keep_relu.end(), "torch.ops.aten.relu_.default") == 1);

  const auto no_bias = targets_of("text", [](ProgramGraph& graph) {
    auto& gelu = graph.nodes[node_at(graph, "torch.ops.aten.gelu.default")];
    auto& linear = graph.nodes[node_at(graph, "torch.ops.aten.linear.default", 2)];
    REQUIRE(first_output(linear) == *value_argument(gelu, "self"));
    std::erase_if(linear.inputs, [](const auto& input) { return input.name == "bias"; });
  });
  CHECK(std::count(no_bias.begin(), no_bias.end(), "torch.ops.aten.gelu.default") == 1);
}

TEST_CASE("a batch-norm whose count or statistics others use stays as it is") {
  const auto found_after = [](const std::function<void(ProgramGraph&)>& change) {
    const auto targets = targets_of("residual", change);
    return std::count_if(targets.begin(), targets.end(),
                         [](const std::string& target) { return target.starts_with(kBatchNormLayer); });
  };
  const auto used_at_the_end = [](ProgramGraph& graph, const ProgramValue& value) {
    ProgramNode node{.target = "torch.ops.aten.clone.default", .inputs = {}, .outputs = {}, .modules = {}};
    node.inputs.push_back({.name = "self", .argument = {.items = {value}}});
    graph.nodes.push_back(node);
  };
  CHECK(found_after([](ProgramGraph&) {}) == 3);
  CHECK(found_after([&](ProgramGraph& graph) {  // as when the module is called twice
          used_at_the_end(graph, first_output(graph.nodes[node_at(graph, "torch.ops.aten.add_.Tensor")]));
        }) == 2);
  CHECK(found_after([&](ProgramGraph& graph) {
          const auto& norm = graph.nodes[node_at(graph, "torch.ops.aten.batch_norm.default")];
          used_at_the_end(graph, *value_argument(norm, "running_mean"));
        }) == 2);
}

TEST_CASE("what is no layer of ours stays as it is, and why is known") {
  CHECK_THAT(model_named("net").layer_counts().found, Contains("3 of 3 convolutions"));
  CHECK_THAT(model_named("depthwise", "layers").layer_counts().found, Contains("average pools (1 not: a unit ends"));
  ProgramSource source(program_named("text"));
  auto& attention = source.graph.nodes[node_at(source.graph, "torch.ops.aten.scaled_dot_product_attention.default")];
  std::erase_if(attention.inputs, [](const auto& input) { return input.name == "attn_mask"; });
  attention.inputs.push_back({.name = "attn_mask", .argument = {.items = {source.division.input}}});
  ProgramNodes nodes(source.graph.nodes.begin(), source.graph.nodes.end());
  const std::vector<NodeRange> whole{{.first = 0, .end = nodes.size(), .name = {}, .input = {}, .output = {}}};
  const auto found =
      find_layers(nodes, {.graph = source.graph, .aliases = *source.aliases, .names = source.names, .units = whole});
  CHECK(found.at("attentions").left.at("their mask depends on more than the number of tokens") == 1);
}

TEST_CASE("layers that a program writes out are found, also if they are causal by a mask") {
  const auto count = [](const std::vector<std::string>& targets, std::string_view target) {
    return std::ranges::count(targets, target);
  };
  const auto written = targets_of("written"), mixed = targets_of("mixed");
  CHECK(count(written, kAttentionLayer) == 2);
  CHECK(count(written, kLinearGeluLayer) == 2);
  CHECK(count(written, kLinearLayer) == 2 * 3 + 1);
  for (const char* gone :
       {"torch.ops.aten.addmm.default", "torch.ops.aten.tanh.default", "torch.ops.aten.pow.Tensor_Scalar",
        "torch.ops.aten.softmax.int", "torch.ops.aten.masked_fill.Scalar"})
    CHECK(count(written, gone) == 0);
  CHECK(count(mixed, kAttentionLayer) == 1);
  CHECK(count(mixed, kLinearGeluLayer) == 1);
  CHECK(count(mixed, kConvolutionLayer) == 2);
  CHECK(count(mixed, "torch.ops.aten.erf.default") == 0);
  CHECK(model_named("written").layer_counts().written_attentions == 2);
  CHECK(model_named("text").layer_counts().written_attentions == 0);
}

TEST_CASE("what looks like a written layer but computes something else stays as it is") {
  const auto kept = [](const std::string& name, std::string_view target,
                       const std::function<void(ProgramNode&)>& change, std::string_view kept_target) {
    const auto targets = targets_of(name, [&](ProgramGraph& graph) { change(graph.nodes[node_at(graph, target)]); });
    return std::ranges::count(targets, kept_target) > 0;
  };
  const auto set = [](const char* name, ProgramItem item) {
    return [name, item](ProgramNode& node) {
      for (auto& input : node.inputs)
        if (input.name == name) input.argument.items = {item};
    };
  };
  CHECK(
      kept("written", "torch.ops.aten.pow.Tensor_Scalar", set("exponent", int64_t{2}), "torch.ops.aten.tanh.default"));
  CHECK(kept("mixed", "torch.ops.aten.div.Tensor", set("other", 2.0), "torch.ops.aten.erf.default"));
  CHECK(kept("written", "torch.ops.aten.eq.Scalar", set("other", int64_t{1}), "torch.ops.aten.softmax.int"));
  CHECK(kept("written", "torch.ops.aten.masked_fill.Scalar", set("value", -1.0), "torch.ops.aten.softmax.int"));
  CHECK(kept("mixed", "torch.ops.aten.softmax.int", set("dim", int64_t{2}), "torch.ops.aten.softmax.int"));
}

TEST_CASE("written layers run as written unless a slot is filled, and a slot computes the same") {
  class AskedFor : public CountedOperations {
   public:
    bool keeps_written_attention() const override { return false; }
    bool keeps_written_gelu() const override { return false; }
  };
  const at::Tensor tokens = at::arange(16, at::kLong).view({2, 8}), images = at::linspace(-1, 1, 2 * 3 * 16 * 16);
  for (const auto& [name, input] : {std::pair("written", tokens), std::pair("mixed", images.view({2, 3, 16, 16}))}) {
    INFO(name);
    Model model = model_named(name);
    const auto run = [&](const std::shared_ptr<CountedOperations>& operations) {
      model.set_operations(all_through(operations));
      const at::NoGradGuard no_gradients;
      return model.forward(input, {.training = false});
    };
    const auto plain = std::make_shared<CountedOperations>();
    const auto asked = std::make_shared<AskedFor>();
    const at::Tensor expected = run(plain);
    CHECK(plain->calls["attention"] == 0);
    CHECK(at::allclose(run(asked), expected, 1e-5, 1e-6));
    CHECK(asked->calls["attention"] == (input.dim() == 2 ? 2 : 1));
  }
}
