#include "device/product.h"

#include "base/error.h"
#include "device/differentiable.h"
#include "device/tensor.h"

#include <ATen/Context.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

// libtorch 2.11.0 exports this function without its header.
namespace at::native {
TORCH_API void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result, float beta, float alpha);
}  // namespace at::native

namespace trainopt {
namespace {

/// Products of fewer values are MKL's: oneDNN's take about 15 µs to begin.
constexpr int64_t kLeastValues = int64_t{1} << 27;
/// oneDNN is faster when rows and summed terms are split into blocks of at most this many.
constexpr int64_t kBlock = 4096;

bool has_slow_mkl() {
  static const bool slow = __builtin_cpu_is("amd") && __builtin_cpu_supports("avx512f") &&
                           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                           __builtin_cpu_supports("avx512dq");
  return slow;
}

bool uses_onednn(const at::Tensor& a, const at::Tensor& b) {
  return onednn_is_faster(a, b, a.size(0) * a.size(1) * b.size(1));
}

}  // namespace

bool onednn_is_faster(const at::Tensor& left, const at::Tensor& right, int64_t values) {
  return values >= kLeastValues && has_slow_mkl() && left.is_cpu() && left.scalar_type() == at::kFloat &&
         right.scalar_type() == at::kFloat && at::globalContext().userEnabledMkldnn();
}

void product_out(at::Tensor& result, const at::Tensor& a, const at::Tensor& b) {
  if (!uses_onednn(a, b)) {
    at::mm_out(result, a, b);
    return;
  }
  RECORD_FUNCTION("aten::mm", std::vector<c10::IValue>({a, b}));  // as profilers and receipts know it
  at::native::mkldnn_matmul(a, b, result, /*beta=*/0, /*alpha=*/1);
}

void add_product_out(at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, double factor) {
  if (!uses_onednn(a, b)) {
    at::addmm_out(sum, sum, a, b, 1, factor);
    return;
  }
  RECORD_FUNCTION("aten::addmm", std::vector<c10::IValue>({sum, a, b}));
  const int64_t rows = a.size(0), terms = a.size(1);
  for (int64_t row = 0; row < rows; row += kBlock)
    for (int64_t term = 0; term < terms; term += kBlock) {
      const int64_t of_rows = std::min(kBlock, rows - row), of_terms = std::min(kBlock, terms - term);
      at::native::mkldnn_matmul(a.narrow(0, row, of_rows).narrow(1, term, of_terms), b.narrow(0, term, of_terms),
                                sum.narrow(0, row, of_rows), /*beta=*/1, static_cast<float>(factor));
    }
}

at::Tensor onednn_linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  using Scalars = c10::List<std::optional<at::Scalar>>;
  using Text = std::string_view;
  using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, Text, Scalars,
                               std::optional<Text>);
  static const auto operation = c10::Dispatcher::singleton().findSchemaOrThrow(kOnednnLinear, "").typed<Signature>();
  const auto added = bias.defined() ? std::optional(bias) : std::nullopt;
  return operation.call(input, weight, added, /*attr=*/"none", Scalars(), /*algorithm=*/"");
}

namespace {

/// Null: the operation is no product.
std::optional<ProductCall> product_call(const c10::OperatorHandle& handle, const torch::jit::Stack& stack) {
  constexpr std::array<std::string_view, 7> kProducts{
      "aten::addmm", "aten::mm", "aten::convolution", "aten::_scaled_mm", kOnednnLinear, "aten::bmm", "aten::baddbmm"};
  const c10::OperatorName& name = handle.operator_name();
  if (!name.overload_name.empty() || std::ranges::find(kProducts, name.name) == kProducts.end()) return std::nullopt;
  ProductCall call{.operation = name.name, .sizes = {}};
  for (const c10::IValue& argument : torch::jit::last(stack, handle.schema().arguments().size()))
    if (argument.isTensor() && argument.toTensor().defined()) call.sizes.push_back(argument.toTensor().sizes().vec());
  return call;
}

bool is_kept(const ProductCall& call) { return !call.operation.ends_with("bmm"); }

}  // namespace

struct KeepProducts::Kept : BelowAutograd {
  ~Kept() override = default;
  void operation(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack& stack) override {
    auto call = product_call(handle, stack);
    compute(handle, keys, stack);
    if (!call) return;
    const at::Tensor result = is_kept(*call) ? stack.back().toTensor() : at::Tensor();
    versions.push_back(result.defined() ? result._version() : 0);
    products.calls.push_back(*std::move(call));
    products.results.push_back(result);
  }

  Products products;
  std::vector<int64_t> versions;  ///< what the results had when they were computed
};

KeepProducts::KeepProducts() : kept_(std::make_unique<Kept>()) {}
KeepProducts::~KeepProducts() = default;

Products KeepProducts::take() {
  Products products = std::exchange(kept_->products, {});
  for (size_t i = 0; i < products.results.size(); ++i)
    if (at::Tensor& result = products.results[i]; result.defined() && result._version() != kept_->versions[i])
      result = at::Tensor();
  return products;
}

struct RepeatProducts::Repeated : BelowAutograd {
  explicit Repeated(Products products_) : products(std::move(products_)) {}
  ~Repeated() override = default;
  void operation(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack& stack) override {
    const auto call = product_call(handle, stack);
    const at::Tensor result = call ? take(*call) : at::Tensor();
    if (!result.defined()) return compute(handle, keys, stack);
    torch::jit::drop(stack, handle.schema().arguments().size());
    torch::jit::push(stack, result.variable_data());  // a tensor of its own, to which autograd adds a history
  }
  at::Tensor take(const ProductCall& call) {
    if (next >= products.calls.size() || products.calls[next] != call) {
      products = {};
      return {};
    }
    return std::exchange(products.results[next++], {});
  }

  Products products;
  size_t next = 0;
};

RepeatProducts::RepeatProducts(Products products) : repeated_(std::make_unique<Repeated>(std::move(products))) {}
RepeatProducts::~RepeatProducts() = default;

at::Tensor without_values(const at::Tensor& result) {
  return at::full({}, std::numeric_limits<double>::quiet_NaN(), result.options()).expand(result.sizes());
}

}  // namespace trainopt
