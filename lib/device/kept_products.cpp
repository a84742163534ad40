#include "device/kept_products.h"

#include "base/error.h"
#include "device/below_autograd.h"
#include "device/product.h"
#include "device/tensor.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace trainopt {
namespace {

bool is_product(const c10::OperatorHandle& handle) {
  constexpr std::array<std::string_view, 5> kProducts{"aten::addmm", "aten::mm", "aten::convolution",
                                                      "aten::_scaled_mm", kOnednnLinear};
  const c10::OperatorName& name = handle.operator_name();
  return name.overload_name.empty() && std::find(kProducts.begin(), kProducts.end(), name.name) != kProducts.end();
}

}  // namespace

struct KeepProducts::Kept : BelowAutograd {
  ~Kept() override = default;
  void operation(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack& stack) override {
    compute(handle, keys, stack);
    if (!is_product(handle)) return;
    const at::Tensor& result = stack.back().toTensor();
    results.emplace_back(result, result._version());
  }

  std::vector<std::pair<at::Tensor, int64_t>> results;  ///< with the version as computed
};

KeepProducts::KeepProducts() : kept_(std::make_unique<Kept>()) {}
KeepProducts::~KeepProducts() = default;

Products KeepProducts::take() {
  Products products;
  for (auto& [result, version] : std::exchange(kept_->results, {}))
    products.push_back(result._version() == version ? std::move(result) : at::Tensor());
  return products;
}

struct RepeatProducts::Repeated : BelowAutograd {
  explicit Repeated(Products products) : results(std::move(products)) {}
  ~Repeated() override = default;
  void operation(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack& stack) override {
    if (!is_product(handle)) return compute(handle, keys, stack);
    TRAINOPT_CHECK(next < results.size());
    const at::Tensor result = std::exchange(results[next++], {});
    if (!result.defined()) return compute(handle, keys, stack);
    torch::jit::drop(stack, handle.schema().arguments().size());
    torch::jit::push(stack, result.variable_data());  // a tensor of its own, to which autograd adds a history
  }

  std::vector<at::Tensor> results;
  size_t next = 0;
};

RepeatProducts::RepeatProducts(Products products) : repeated_(std::make_unique<Repeated>(std::move(products))) {}
RepeatProducts::~RepeatProducts() = default;

at::Tensor without_values(const at::Tensor& result) {
  return at::full({}, std::numeric_limits<double>::quiet_NaN(), result.options()).expand(result.sizes());
}

}  // namespace trainopt
