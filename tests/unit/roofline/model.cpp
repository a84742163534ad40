// What a model's shapes and units take at best.
#include "device/tensor.h"
#include "roofline/model_products.h"
#include "roofline/unit_limits.h"

#include <catch2/catch.hpp>

namespace trainopt {
namespace {

ModelConfig config_of(ModelKind name) {
  ModelConfig config;
  config.name = name;
  config.num_classes = 10;
  config.hidden = {16, 16};
  config.layers = 2;
  config.heads = 2;
  config.width = 8;
  config.context = 16;
  config.vocabulary = 32;
  return config;
}

double flops_of(const std::vector<ModelProduct>& products) {
  double sum = 0;
  for (const ModelProduct& product : products) sum += static_cast<double>(product.calls) * product.flops;
  return sum;
}

}  // namespace

TEST_CASE("the products of a model are all of its multiplications") {
  const bool is_text = GENERATE(false, true);
  const auto name = is_text ? ModelKind::gpt2 : GENERATE(ModelKind::mlp, ModelKind::resnet18);
  const InputShape input = is_text ? InputShape{.tokens = 16} : InputShape{.channels = 3, .height = 32, .width = 32};
  const ModelConfig config = config_of(name);
  const auto products =
      measure_products(config, input, {.device = at::kCPU, .batch = 2, .types = {at::kFloat}, .seconds = 0.0});
  const Model model = make_model(config, input, at::kMeta, 0);
  CHECK(flops_of(products) == Approx(2 * model.flops_per_sample()));
  for (const ModelProduct& product : products) {
    CHECK(product.times.at("float32").forward_s > 0);
    CHECK(product.times.at("float32").backward_s > 0);
  }
}

TEST_CASE("equal shapes are measured once") {
  const auto products = measure_products(config_of(ModelKind::mlp), {.channels = 1, .height = 4, .width = 4},
                                         {.device = at::kCPU, .batch = 2, .types = {at::kFloat}, .seconds = 0.0});
  REQUIRE(products.size() == 2);  // 16 to 16, twice, and 16 to 10
  CHECK(products[0].calls == 2);
  CHECK(products[0].shape == "2 × 16 to 16");
  CHECK(products[1].calls == 1);
}

TEST_CASE("a unit takes at least its multiplications and its traffic") {
  const Model model = make_model(config_of(ModelKind::mlp), {.channels = 1, .height = 4, .width = 4}, at::kMeta, 0);
  const auto limits = unit_limits(model, /*batch=*/2, /*activation_bytes=*/4, {.flops_per_s = 1e6, .bytes_per_s = 1e6});
  REQUIRE(limits.size() == model.units().size());
  const UnitLimit& first = limits.front();  // 16 to 16
  CHECK(first.flops == 3 * 2 * 2.0 * 16 * 16);
  CHECK(first.bytes == 3 * (2 * 4.0 * (16 + 16) + 4.0 * (16 * 16 + 16)));
  CHECK(first.compute_ms == Approx(first.flops / 1e3));
  CHECK(first.memory_ms == Approx(first.bytes / 1e3));
  CHECK(first.by_memory() == (first.bytes > first.flops));
  CHECK(first.least_ms() == std::max(first.compute_ms, first.memory_ms));
}

}  // namespace trainopt
