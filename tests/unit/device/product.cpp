// Tests matrix products by the faster library, against libtorch's in float64. Which library that is depends on the CPU.
#include "device/product.h"
#include "device/tensor.h"
#include "support/catch.h"

using namespace trainopt;

namespace {

at::Tensor random(at::IntArrayRef sizes) { return at::randn(sizes, at::TensorOptions(at::kFloat)); }

double error(const at::Tensor& result, const at::Tensor& wanted) {
  return ((result.to(at::kDouble) - wanted).norm() / wanted.norm()).item<double>();
}

}  // namespace

TEST_CASE("products, and sums with a product, are libtorch's up to rounding") {
  at::manual_seed(3);
  // Few values; many rows and terms; transposed matrices within wider ones, as a language model's logits are.
  const at::Tensor few = random({5, 7}), square = random({4200, 4200}), wide = random({3000, 4224});
  const std::vector<std::pair<at::Tensor, at::Tensor>> all{
      {few, random({7, 3})}, {square, random({4200, 8})}, {wide.narrow(1, 0, 4200).t(), random({3000, 11})}};
  for (const auto& [a, b] : all) {
    const at::Tensor wanted = a.to(at::kDouble).mm(b.to(at::kDouble)), before = random({a.size(0), b.size(1)});
    at::Tensor product = at::full_like(before, 5), sum = before.clone();
    product_out(product, a, b);
    CHECK(error(product, wanted) < 1e-5);
    add_product_out(sum, a, b, 0.5);
    CHECK(error(sum, before.to(at::kDouble) + 0.5 * wanted) < 1e-5);
  }
}

TEST_CASE("oneDNN's linear is libtorch's up to rounding") {
  at::manual_seed(3);
  const at::Tensor input = random({2, 3, 16}), weight = random({5, 16}), bias = random({5}), none;
  for (const auto& given : {bias, none}) {
    const at::Tensor result = onednn_linear(input, weight, given);
    CHECK(result.sizes() == at::IntArrayRef({2, 3, 5}));
    const at::Tensor wanted =
        at::linear(input.to(at::kDouble), weight.to(at::kDouble), given.defined() ? given.to(at::kDouble) : given);
    CHECK(error(result, wanted) < 1e-6);
  }
}

TEST_CASE("small products and those of other types are not oneDNN's") {
  const at::Tensor matrix = at::ones({2, 2});
  CHECK_FALSE(onednn_is_faster(matrix, matrix, 8));
  CHECK_FALSE(onednn_is_faster(matrix.to(at::kBFloat16), matrix, 1 << 30));
  CHECK_FALSE(onednn_is_faster(matrix, matrix.to(at::kDouble), 1 << 30));
}
