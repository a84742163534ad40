#include "model/model.h"
#include "device/tensor.h"
#include "state_hash.h"
#include "support/catch.h"

using namespace trainopt;

namespace {

struct Network {
  ModelKind kind;
  size_t tensors;
  int64_t parameters;
  uint64_t names;  // hash_of() torchvision 0.26's state_dict
  double multiply_adds;
  size_t units;
};
const std::vector<Network> kNetworks{{ModelKind::resnet18, 122, 11689512, 0x5b63edfa52a44602, 1814073344, 10},
                                     {ModelKind::resnet34, 218, 21797672, 0x9694acdcb89c5faa, 3663761408, 18},
                                     {ModelKind::resnet50, 320, 25557032, 0x7423ad1ca2684dc6, 4089184256, 18}};

std::vector<std::string> names_of(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

class Doubled : public WrappedUnit {
 public:
  using WrappedUnit::WrappedUnit;
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    return inner_->forward(input, context) * 2;
  }
};

}  // namespace

TEST_CASE("the resnets have torchvision's names, shapes and counts, and allocate nothing on meta") {
  for (const auto& network : kNetworks) {
    const Model model = make_model({.name = network.kind, .num_classes = 1000}, {}, at::kMeta, 0);
    INFO(word_of(network.kind));
    CHECK(model.state().size() == network.tensors);
    CHECK(hash_of(model.state()) == network.names);
    CHECK(model.parameter_count() == network.parameters);
    CHECK(model.parameters().size() + model.buffers().size() == network.tensors);
    CHECK(model.flops_per_sample() == 2 * network.multiply_adds);
    CHECK(model.output_shape() == SampleShape{1000});
    CHECK(model.units().size() == network.units);
    for (const auto& [name, tensor] : model.state()) {
      REQUIRE(tensor.is_meta());
      REQUIRE(tensor.storage().data() == nullptr);
    }
    for (const auto& [name, tensor] : model.parameters()) REQUIRE((tensor.requires_grad() && tensor.is_leaf()));
    for (const auto& [name, tensor] : model.buffers()) REQUIRE_FALSE(tensor.requires_grad());
  }
}

TEST_CASE("units are the stem, each block and the head") {
  const Model model = make_model({.name = ModelKind::resnet18}, {}, at::kMeta, 0);
  std::vector<std::string> names;
  for (const auto& unit : model.units()) names.push_back(unit->name());
  CHECK(names == std::vector<std::string>{"stem", "layer1.0", "layer1.1", "layer2.0", "layer2.1", "layer3.0",
                                          "layer3.1", "layer4.0", "layer4.1", "head"});
  CHECK(names_of(model.unit_state(9)) == std::vector<std::string>{"fc.weight", "fc.bias"});
  size_t tensors = 0;
  for (size_t unit = 0; unit < names.size(); ++unit) {
    for (const auto& name : names_of(model.unit_state(unit))) {
      if (names[unit].starts_with("layer")) CHECK(name.starts_with(names[unit] + "."));
    }
    tensors += model.unit_state(unit).size();
  }
  CHECK(tensors == model.state().size());
}

TEST_CASE("the cifar stem preserves the image size") {
  const Model model = make_model({.stem = StemKind::cifar}, {3, 32, 32}, at::kMeta, 0);
  CHECK(model.state()[0].first == "conv1.weight");
  CHECK(model.state()[0].second.sizes() == at::IntArrayRef({64, 3, 3, 3}));
  CHECK(model.flops_per_sample() == 2 * 555422720.0);  // summed by hand over torchvision's layers
  const Model gray = make_model({.stem = StemKind::cifar}, {1, 28, 28}, at::kMeta, 0);
  CHECK(gray.state()[0].second.sizes() == at::IntArrayRef({64, 1, 3, 3}));
}

TEST_CASE("the mlp flattens its input") {
  Model model = make_model({.name = ModelKind::mlp, .num_classes = 4, .hidden = {5, 6}}, {3, 2, 2}, at::kCPU, 1);
  CHECK(names_of(model.parameters()) == std::vector<std::string>{"layers.0.weight", "layers.0.bias", "layers.1.weight",
                                                                 "layers.1.bias", "layers.2.weight", "layers.2.bias"});
  CHECK(model.buffers().empty());
  CHECK(model.flops_per_sample() == 2 * (12 * 5 + 5 * 6 + 6 * 4));
  CHECK(model.output_shape() == SampleShape{4});
  const at::Tensor input = at::randn({7, 3, 2, 2});
  at::Tensor expected = input.reshape({7, 12});
  const auto p = model.parameters();
  for (size_t layer = 0; layer < 3; ++layer) {
    expected = at::matmul(expected, p[2 * layer].second.t()) + p[2 * layer + 1].second;
    if (layer < 2) expected = expected.clamp_min(0);
  }
  CHECK(at::allclose(model.forward(input, {.training = true}), expected, 1e-5, 1e-6));
  CHECK(at::allclose(model.forward(input.contiguous(at::MemoryFormat::ChannelsLast), {}), expected, 1e-5, 1e-6));

  const Model straight = make_model({.name = ModelKind::mlp, .num_classes = 4, .hidden = {}}, {3, 2, 2}, at::kMeta, 1);
  CHECK(names_of(straight.parameters()) == std::vector<std::string>{"layers.0.weight", "layers.0.bias"});
}

TEST_CASE("dropout rescales the kept values, draws from the given generator, and is off in evaluation") {
  Model model = make_model({.name = ModelKind::mlp, .num_classes = 2, .hidden = {10000}, .dropout = 0.25}, {1, 1, 1},
                           at::kCPU, 1);
  const at::NoGradGuard no_grad;
  for (auto& [name, tensor] : model.parameters()) tensor.fill_(name.ends_with("bias") ? 0 : 1);
  const at::Tensor one = at::ones({1, 1, 1, 1});
  const auto output = [&](uint64_t seed) {
    at::Generator generator = at::globalContext().defaultGenerator(at::kCPU).clone();
    generator.set_current_seed(seed);
    return model.forward(one, {.training = true, .generator = generator})[0][0].item<double>();
  };
  CHECK(output(1) == output(1));
  CHECK(output(1) != output(2));
  const double kept_count = output(3) * 0.75;
  CHECK(kept_count == Approx(std::round(kept_count)));
  CHECK(kept_count == Approx(7500).margin(200));
  CHECK(model.forward(one, {})[0][0].item<double>() == 10000);
}

TEST_CASE("wrapping units changes what they compute but not their names") {
  Model model = make_model({.name = ModelKind::mlp, .hidden = {8}}, {1, 4, 4}, at::kCPU, 3);
  const auto names = names_of(model.state());
  const at::Tensor input = at::randn({2, 1, 4, 4});
  const at::Tensor before = model.forward(input, {});
  std::vector<std::string> seen;
  model.wrap_units([&](std::unique_ptr<Unit> unit) -> std::unique_ptr<Unit> {
    seen.push_back(unit->name());
    if (seen.size() < 2) return unit;
    return std::make_unique<Doubled>(std::move(unit));
  });
  CHECK(seen == std::vector<std::string>{"layers.0", "layers.1"});
  CHECK(at::equal(model.forward(input, {}), before * 2));
  CHECK(names_of(model.state()) == names);
  CHECK(model.units()[1]->name() == "layers.1");
  CHECK(names_of(model.unit_state(1)) == std::vector<std::string>{"layers.1.weight", "layers.1.bias"});
}

TEST_CASE("a model's operations can be replaced after it is built, even after a move") {
  struct CountingConvolutions : PlainConvolutionOperations {
    mutable int all = 0;
    at::Tensor forward(const Conv2d::Shape& shape, const at::Tensor& x, const at::Tensor& w) const override {
      return ++all, PlainConvolutionOperations::forward(shape, x, w);
    }
  };
  struct CountingHeads : PlainHeadOperations {
    mutable int all = 0;
    at::Tensor head(const at::Tensor& x, const Linear& linear, const ForwardContext& context) const override {
      return ++all, PlainHeadOperations::head(x, linear, context);
    }
  };
  struct CountingNorms : PlainBatchNormOperations {
    mutable int stems = 0, additions = 0;
    at::Tensor stem_pool(const at::Tensor& x, const BatchNorm2d& norm, const ForwardContext& context) const override {
      return ++stems, PlainBatchNormOperations::stem_pool(x, norm, context);
    }
    at::Tensor batch_norm_add_relu(const at::Tensor& x, const BatchNorm2d& norm, const at::Tensor& residual,
                                   const ForwardContext& context) const override {
      return ++additions, PlainBatchNormOperations::batch_norm_add_relu(x, norm, residual, context);
    }
  };
  Model first = make_model({}, {3, 32, 32}, at::kCPU, 0);
  Model model = std::move(first);
  const auto convolutions = std::make_shared<CountingConvolutions>();
  const auto norms = std::make_shared<CountingNorms>();
  const auto heads = std::make_shared<CountingHeads>();
  model.set_operations({.convolution = convolutions, .batch_norm = norms, .head = heads});
  model.forward(at::zeros({1, 3, 32, 32}), {});
  CHECK(convolutions->all == 20);
  CHECK(norms->stems == 1);
  CHECK(norms->additions == 8);
  CHECK(heads->all == 1);
  CHECK_THROWS_AS(model.set_operations({.convolution = nullptr}), BrokenInvariant);
}

TEST_CASE("a model counts its convolutions, batch-norms and linear layers") {
  const LayerCounts resnet = make_model({}, {3, 32, 32}, at::kMeta, 0).layer_counts();
  CHECK(resnet.convolutions_3x3 == 16);
  CHECK(resnet.convolutions() == 20);
  CHECK(resnet.batch_norms == 20);
  const LayerCounts mlp = make_model({.name = ModelKind::mlp, .hidden = {8}}, {1, 4, 4}, at::kMeta, 3).layer_counts();
  CHECK(mlp.convolutions() + mlp.batch_norms == 0);
  CHECK((resnet.linears == std::vector<LinearSize>{{512, 10}}));
  CHECK((mlp.linears == std::vector<LinearSize>{{16, 8}, {8, 10}}));
  const ModelConfig gpt2{.name = ModelKind::gpt2, .layers = 1, .heads = 2, .width = 8, .context = 4, .vocabulary = 9};
  const auto linears = make_model(gpt2, {.tokens = 4}, at::kMeta, 0).layer_counts().linears;
  // Not the last layer's, which is the embedding.
  CHECK((linears == std::vector<LinearSize>{{8, 24}, {8, 8}, {8, 32}, {32, 8}}));
}
