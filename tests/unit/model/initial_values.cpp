#include "model/initial_values.h"
#include "base/philox.h"
#include "device/tensor.h"
#include "model/model.h"
#include "support/catch.h"

#include <cmath>

using namespace trainopt;

namespace {

std::map<std::string, at::Tensor> state_of(const Model& model) {
  std::map<std::string, at::Tensor> state;
  for (const auto& [name, tensor] : model.state()) state[name] = tensor.detach();
  return state;
}

}  // namespace

TEST_CASE("initial values follow torchvision's distributions") {
  const auto state = state_of(make_model({.name = ModelKind::resnet50, .num_classes = 1000}, {}, at::kCPU, 7));
  for (const auto& [name, tensor] : state) {
    INFO(name);
    const double count = static_cast<double>(tensor.numel());
    if (tensor.dim() == 4) {  // kaiming_normal_, fan_out, relu
      const double expected = std::sqrt(2.0 / static_cast<double>(tensor.size(0) * tensor.size(2) * tensor.size(3)));
      CHECK(tensor.std().item<double>() == Approx(expected).epsilon(5 / std::sqrt(2 * count)));
      CHECK(std::abs(tensor.mean().item<double>()) < 5 * expected / std::sqrt(count));
      if (count > 1e6) {  // checks the shape of the distribution, not only its deviation
        CHECK(tensor.abs().gt(2 * expected).to(at::kDouble).mean().item<double>() == Approx(0.0455).margin(0.001));
        CHECK(tensor.pow(4).mean().item<double>() == Approx(3 * std::pow(expected, 4)).epsilon(0.03));
      }
    } else if (name.starts_with("fc.")) {
      const double bound = 1 / std::sqrt(2048.0);
      CHECK(tensor.abs().max().item<double>() <= bound * (1 + 1e-6));
      CHECK(tensor.abs().max().item<double>() > 0.99 * bound);
      CHECK(tensor.std().item<double>() == Approx(bound / std::sqrt(3)).epsilon(2 / std::sqrt(count)));
    } else {
      const bool one = name.ends_with("weight") || name.ends_with("running_var");
      CHECK(tensor.eq(one ? 1 : 0).all().item<bool>());
    }
  }
  CHECK(state.at("bn1.num_batches_tracked").scalar_type() == at::kLong);
}

TEST_CASE("a vit's initial values follow torchvision's distributions") {
  const auto state = state_of(make_model({.name = ModelKind::vit_s_16}, {3, 64, 64}, at::kCPU, 7));
  const std::string block = "encoder.layers.encoder_layer_3.";
  const auto check_normal = [&](const std::string& name, double deviation) {
    INFO(name);
    const double count = static_cast<double>(state.at(name).numel());
    CHECK(state.at(name).std().item<double>() == Approx(deviation).epsilon(5 / std::sqrt(2 * count)));
    CHECK(std::abs(state.at(name).mean().item<double>()) < 5 * deviation / std::sqrt(count));
    CHECK(state.at(name).abs().max().item<double>() > 2.5 * deviation);
  };
  const auto check_uniform = [&](const std::string& name, double bound) {
    INFO(name);
    const at::Tensor& tensor = state.at(name);
    const double count = static_cast<double>(tensor.numel());
    CHECK(tensor.abs().max().item<double>() <= bound * (1 + 1e-6));
    CHECK(tensor.abs().max().item<double>() > 0.999 * bound);
    CHECK(tensor.std().item<double>() == Approx(bound / std::sqrt(3)).epsilon(2 / std::sqrt(count)));
  };
  check_normal("conv_proj.weight", std::sqrt(1.0 / 768));
  check_normal("encoder.pos_embedding", 0.02);
  check_normal(block + "mlp.0.bias", 1e-6);
  check_normal(block + "mlp.3.bias", 1e-6);
  check_uniform(block + "self_attention.in_proj_weight", std::sqrt(6.0 / (384 + 3 * 384)));
  check_uniform(block + "self_attention.out_proj.weight", 1 / std::sqrt(384.0));
  check_uniform(block + "mlp.0.weight", std::sqrt(6.0 / (384 + 1536)));
  check_uniform(block + "mlp.3.weight", std::sqrt(6.0 / (384 + 1536)));
  for (const std::string& name : {block + "ln_1.weight", block + "ln_2.weight", std::string("encoder.ln.weight")})
    CHECK(state.at(name).eq(1).all().item<bool>());
  for (const std::string& name :
       {std::string("class_token"), std::string("conv_proj.bias"), block + "ln_1.bias", block + "ln_2.bias",
        block + "self_attention.in_proj_bias", block + "self_attention.out_proj.bias", std::string("encoder.ln.bias"),
        std::string("heads.head.weight"), std::string("heads.head.bias")})
    CHECK(state.at(name).eq(0).all().item<bool>());
}

TEST_CASE("a truncated normal distribution has nothing outside its bounds, and else is the normal one") {
  const at::Tensor whole = at::empty({200001}, at::TensorOptions(at::kFloat)), truncated = at::empty_like(whole);
  fill_initial_values(whole, InitialValues::normal(1.5), 3, "w");
  fill_initial_values(truncated, InitialValues::truncated_normal(1.5), 3, "w");
  CHECK(truncated.abs().max().item<double>() <= 2);
  const at::Tensor inside = whole.abs().le(2);
  CHECK(at::equal(truncated.masked_select(inside), whole.masked_select(inside)));
  const at::Tensor redrawn = truncated.masked_select(inside.logical_not());
  CHECK(redrawn.numel() == Approx(200001 * 0.1824).epsilon(0.02));  // P(|N(0, 1)| > 2 ÷ 1.5)
  // 1 - 2a φ(a) ÷ (2Φ(a) - 1) of the variance is left, with a = 2 ÷ 1.5.
  CHECK(redrawn.std().item<double>() == Approx(1.5 * 0.68195).epsilon(0.02));
}

TEST_CASE("initial values depend only on seed and name") {
  const ModelConfig config{.num_classes = 10};
  const auto a = state_of(make_model(config, {}, at::kCPU, 1)), b = state_of(make_model(config, {}, at::kCPU, 1));
  for (const auto& [name, tensor] : a) CHECK(at::equal(tensor, b.at(name)));
  // Another name with the same shape, and another seed.
  CHECK_FALSE(at::allclose(a.at("layer1.0.conv1.weight"), a.at("layer1.0.conv2.weight")));
  CHECK_FALSE(at::allclose(a.at("conv1.weight"), state_of(make_model(config, {}, at::kCPU, 2)).at("conv1.weight")));
  // Another network that has the same name and shape.
  const auto other = state_of(make_model({.name = ModelKind::resnet34, .num_classes = 10}, {}, at::kCPU, 1));
  CHECK(at::equal(a.at("layer1.1.conv2.weight"), other.at("layer1.1.conv2.weight")));
}

TEST_CASE("large tensors, filled by two threads, equal the sequential stream of draws") {
  const at::Tensor tensor = at::empty({300001}, at::TensorOptions(at::kFloat));
  fill_initial_values(tensor, {InitialValues::Kind::uniform, 0.5}, 9, "w");
  PhiloxStream stream(mix_key(9, "w"));
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    const double expected = (stream.next_u32() + 0.5) / 4294967296.0 - 0.5;
    if (std::abs(tensor.const_data_ptr<float>()[i] - expected) > 1e-7) FAIL("element " << i);
  }
}
