#include "device/product.h"

#include "device/differentiable.h"
#include "device/tensor.h"
#include "support/catch.h"

#include <ATen/ops/bmm.h>
#include <ATen/record_function.h>

#include <map>

using namespace trainopt;

namespace {

std::map<std::string, int>& counts() {
  static std::map<std::string, int> counts;
  return counts;
}

/// How often each of libtorch's operations runs in `work`, those within others included.
std::map<std::string, int> operations_in(const std::function<void()>& work) {
  counts().clear();
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
        ++counts()[call.name()];
        return nullptr;
      }));
  work();
  at::removeCallback(handle);
  return counts();
}

const at::Tensor kWeight = at::arange(12, at::kFloat).reshape({3, 4}) / 10, kBias = at::ones({3});

/// Two products; the second one's result is overwritten unless `keeps`.
at::Tensor network(const at::Tensor& input, const at::Tensor& weight, bool keeps = true) {
  const at::Tensor first = at::linear(input, weight, kBias).exp();
  at::Tensor second = at::mm(first, weight);
  return (keeps ? second.sin() : second.sin_()).sum(1);
}

}  // namespace

TEST_CASE("a repetition computes no product, and its gradients have the same bits") {
  const at::Tensor input = at::arange(8, at::kFloat).reshape({2, 4}) / 7;
  const auto gradients = [&](const std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>& compute) {
    const at::Tensor x = input.clone().requires_grad_(), w = kWeight.clone().requires_grad_();
    return gradients_of(compute(x, w), at::ones({2}), {x, w});
  };
  const auto plain = gradients([](const at::Tensor& x, const at::Tensor& w) { return network(x, w); });
  at::Tensor first, second;
  std::map<std::string, int> operations;
  const auto repeated = gradients([&](const at::Tensor& x, const at::Tensor& w) {
    Products products;
    {
      const at::NoGradGuard no_grad;
      KeepProducts keeping;
      first = network(x, w);
      products = keeping.take();
    }
    REQUIRE(products.calls.size() == 2);
    CHECK(products.results[0].equal(at::linear(input, kWeight, kBias)));
    operations = operations_in([&] {
      const RepeatProducts repeating(products);
      second = network(x, w);
    });
    return second;
  });
  CHECK(second.equal(first));
  for (size_t i = 0; i < 2; ++i) CHECK(repeated[i].equal(plain[i]));
  CHECK(operations.at("aten::exp") == 1);
  // Above autograd the calls are as usual. Nothing runs below them.
  CHECK(operations.at("aten::addmm") == 1);
  CHECK(operations.at("aten::mm") == 1);
}

TEST_CASE("a product that is overwritten in place is computed again") {
  const at::Tensor input = at::ones({2, 4});
  KeepProducts keeping;
  const at::Tensor result = network(input, kWeight, /*keeps=*/false);
  Products products = keeping.take();
  REQUIRE(products.calls.size() == 2);
  CHECK(products.results[0].defined());
  CHECK_FALSE(products.results[1].defined());
  products.results[0] = without_values(products.results[0]);
  {
    const RepeatProducts repeating(products);
    CHECK(network(input, kWeight).isnan().all().item<bool>());  // from the first product, through the second
  }
  CHECK(network(input, kWeight).equal(result));  // outside, nothing is repeated
}

TEST_CASE("what has no values has sizes and type, and takes one value's memory") {
  const at::Tensor stand_in = without_values(at::zeros({3, 5}, at::kBFloat16));
  CHECK(stand_in.sizes() == at::IntArrayRef({3, 5}));
  CHECK(stand_in.scalar_type() == at::kBFloat16);
  CHECK(stand_in.storage().nbytes() == 2);
  CHECK(stand_in.isnan().all().item<bool>());
}

TEST_CASE("a convolution is one product, whatever computes it") {
  const at::Tensor image = at::ones({1, 2, 5, 5}), filter = at::ones({3, 2, 3, 3});
  KeepProducts keeping;
  const at::Tensor result = at::conv2d(image, filter);
  const Products products = keeping.take();
  REQUIRE(products.calls.size() == 1);
  CHECK(products.results[0].equal(result));
}

TEST_CASE("oneDNN's linear is a product, within an operation of ours too") {
  const at::Tensor input = at::ones({2, 4});
  const auto network = [&] {
    return differentiable(
        {input.clone().requires_grad_()},
        [&](std::vector<at::Tensor>&) { return onednn_linear(input, kWeight, kBias); },
        [](const BackwardCall& call) { return std::vector{call.gradient}; });
  };
  KeepProducts keeping;
  const at::Tensor result = network();
  Products products = keeping.take();
  REQUIRE(products.calls.size() == 1);
  CHECK(products.results[0].equal(result));
  products.results[0] = without_values(products.results[0]);
  const RepeatProducts repeating(products);
  CHECK(network().isnan().all().item<bool>());
}

TEST_CASE("from a product on that the first computation did not have, all are computed") {
  const at::Tensor input = at::ones({2, 4});
  Products products;
  {
    KeepProducts keeping;
    network(input, kWeight);
    products = keeping.take();
  }
  for (at::Tensor& result : products.results) result = without_values(result);
  const RepeatProducts repeating(products);
  at::bmm(at::ones({2, 3, 4}), at::ones({2, 4, 3}));
  CHECK_FALSE(network(input, kWeight).isnan().any().item<bool>());
}
