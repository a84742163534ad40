// Which convolutions the switch winograd takes. tests/kernels tests the kernels.
#include "device/tensor.h"
#include "optimizations/winograd/winograd.h"
#include "recipe/make_plan.h"
#include "support/catch.h"
#include "support/trained_ranks.h"

namespace winograd_tests {

using namespace trainopt;
using namespace trainopt::test;

TEST_CASE("winograd takes only convolutions for which it pays") {
  const auto kernel = winograd::make_convolutions({});
  const auto supports = [&](const Conv2d::Shape& shape, at::IntArrayRef input) {
    return kernel->supports(shape, at::empty(input));
  };
  const Conv2d::Shape usual{.in = 64, .out = 64, .kernel = 3, .stride = 1, .padding = 1};
  CHECK(supports(usual, {4, 64, 16, 16}));
  CHECK_FALSE(supports(usual, {1, 64, 16, 16}));  // too few tiles
  CHECK_FALSE(supports(usual, {64, 64, 1, 1}));   // mostly border
  CHECK_FALSE(supports({.in = 64, .out = 64, .kernel = 3, .stride = 2, .padding = 1}, {4, 64, 16, 16}));
  CHECK_FALSE(supports({.in = 64, .out = 64, .kernel = 1, .stride = 1, .padding = 0}, {4, 64, 16, 16}));
  CHECK_FALSE(supports({.in = 64, .out = 64, .kernel = 3, .stride = 1, .padding = 0}, {4, 64, 16, 16}));
  CHECK_FALSE(supports({.in = 40, .out = 64, .kernel = 3, .stride = 1, .padding = 1}, {4, 40, 16, 16}));
  CHECK_FALSE(supports({.in = 64, .out = 16, .kernel = 3, .stride = 1, .padding = 1}, {4, 64, 16, 16}));
}

TEST_CASE("the receipt of winograd says which form ran, and on which shapes") {
  Recipe recipe;
  recipe.device = "cpu";
  recipe.model = {.name = ModelKind::resnet18, .stem = StemKind::cifar};
  recipe.data.batch_size = 4;
  recipe.data.size = 8;
  recipe.data.transforms = {ResizeConfig{.shorter_side = 16}, NormalizeConfig{}};
  recipe.train.max_steps = 1;
  const auto observed = [&](winograd::ProductType products) {
    recipe.optimizations.winograd = {true, {.products = products}};
    for (const auto& [name, requested, receipt] : train_as(1, recipe).receipts)
      if (name == "winograd") return receipt.observed;
    return std::string();
  };
  const std::string used = "4 of 20 convolutions and 4 of their gradients used Winograd (F(4×4, 3×3), ",
                    shapes = "): 64 × 16×16 (4)";
  CHECK(observed(winograd::ProductType::float32) == used + "float32 products" + shapes);
  CHECK(observed(winograd::ProductType::bfloat16) == used + "bfloat16 products" + shapes);
}

}  // namespace winograd_tests
