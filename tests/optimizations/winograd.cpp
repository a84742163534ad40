// Which convolutions the switch winograd takes. tests/kernels tests the kernels.
#include "device/tensor.h"
#include "optimizations/winograd/convolution.h"
#include "support/catch.h"

using namespace trainopt;

TEST_CASE("winograd takes only convolutions for which it pays") {
  const auto kernel = winograd::make_convolutions();
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
