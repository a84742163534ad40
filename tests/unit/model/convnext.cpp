// ConvNeXt-T against torchvision 0.26: names, sizes, operations, and stochastic depth. Outputs and gradients are
// compared by tests/oracle.
#include "device/tensor.h"
#include "filled.h"
#include "model/model.h"
#include "support/catch.h"

using namespace trainopt;

namespace {

const ModelConfig kConvnext{.name = ModelKind::convnext_tiny};

at::Tensor output(Model& model, const at::Tensor& input, uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU).clone();
  generator.set_current_seed(seed);
  const at::NoGradGuard no_grad;
  return model.forward(input, {.training = true, .generator = generator});
}

}  // namespace

TEST_CASE("convnext_tiny has torchvision's parameters and operations") {
  const Model model = make_model({.name = ModelKind::convnext_tiny, .num_classes = 1000}, {}, at::kMeta, 0);
  CHECK(model.parameter_count() == 28589128);
  CHECK(model.flops_per_sample() / 2e9 == Approx(4.456).margin(5e-4));
  CHECK(model.output_shape() == SampleShape{1000});
  CHECK(model.units().size() == 1 + 18 + 3 + 1);
  const LayerCounts layers = model.layer_counts();
  CHECK(layers.layer_norms == 1 + 18 + 3 + 1);
  CHECK(layers.gelus == 18);
  CHECK(layers.attentions == 0);
  CHECK(layers.batch_norms == 0);
  CHECK(layers.convolutions_3x3 == 0);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : model.state()) names.push_back(name);
  CHECK(std::vector(names.begin(), names.begin() + 7) ==
        std::vector<std::string>{"features.0.0.weight", "features.0.0.bias", "features.0.1.weight", "features.0.1.bias",
                                 "features.1.0.layer_scale", "features.1.0.block.0.weight",
                                 "features.1.0.block.0.bias"});
  CHECK(names.back() == "classifier.2.bias");
}

TEST_CASE("convnext_tiny refuses images that it would shrink to nothing") {
  CHECK_THROWS_WITH(make_model(kConvnext, {3, 31, 64}, at::kMeta, 0),
                    "model.name: convnext_tiny needs images of at least 32 × 32 pixels, and these have 31 × 64; change "
                    "the size in data");
}

TEST_CASE("without stochastic depth training computes what evaluation does") {
  ModelConfig config = kConvnext;
  config.stochastic_depth = 0;
  Model model = make_model(config, {3, 32, 32}, at::kCPU, 1);
  const at::Tensor input = input_by_formula({2, 3, 32, 32});
  const at::NoGradGuard no_grad;
  CHECK(at::equal(output(model, input, 1), model.forward(input, {})));
}

TEST_CASE("stochastic depth skips whole samples, a block with the probability of its depth") {
  // All blocks but the last add nothing, so a sample's output tells whether it skipped the last.
  Model model = make_model(kConvnext, {3, 32, 32}, at::kCPU, 1);
  const at::NoGradGuard no_grad;
  for (auto [name, tensor] : model.state())
    if (name.ends_with("layer_scale")) tensor.fill_(name.starts_with("features.7.2.") ? 1.0 : 0.0);
  constexpr int64_t kSamples = 1000;
  const at::Tensor input = input_by_formula({1, 3, 32, 32}).expand({kSamples, 3, 32, 32});
  const at::Tensor outputs = output(model, input, 3);
  int64_t different = 0;
  const at::Tensor first = outputs[0];
  for (int64_t i = 0; i < kSamples; ++i) different += !at::allclose(outputs[i], first, 1e-3, 1e-3);
  const int64_t skipped = std::min(different, kSamples - different);
  CHECK(skipped > 60);  // 100 are expected, with a standard deviation of 9.5; the seed is fixed
  CHECK(skipped < 140);
  CHECK(at::equal(output(model, input, 3), outputs));
  CHECK_FALSE(at::equal(output(model, input, 4), outputs));
}
