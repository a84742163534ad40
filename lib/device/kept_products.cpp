#include "device/kept_products.h"

#include "base/error.h"
#include "device/tensor.h"

#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <limits>
#include <utility>

// A dispatch key below autograd that libtorch reserves for fake tensors of another project, and that no operation of
// libtorch handles. While it is included on a thread, every product passes here on its way from autograd to its kernel.
namespace trainopt {
namespace {

constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

/// What happens to this thread's products.
class Interceptor {
 public:
  Interceptor() : outer_(std::exchange(active(), this)), included_(kKey) {}
  virtual ~Interceptor() { active() = outer_; }
  Interceptor(const Interceptor&) = delete;
  Interceptor& operator=(const Interceptor&) = delete;

  virtual void product(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack& stack) = 0;

  static Interceptor*& active() {
    thread_local Interceptor* active = nullptr;
    return active;
  }

 protected:
  /// A product within another one (a convolution may be computed as one) does not pass here.
  static void compute(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
    const c10::impl::ExcludeDispatchKeyGuard not_here(kKey);
    operation.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), &stack);
  }

 private:
  Interceptor* outer_;
  c10::impl::IncludeDispatchKeyGuard included_;
};

void intercept(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  Interceptor::active()->product(operation, keys, *stack);
}

TORCH_LIBRARY_IMPL(_, Fake, others) { others.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, Fake, products) {
  for (const char* name : {"addmm", "mm", "convolution", "_scaled_mm"})
    products.impl(name, torch::CppFunction::makeFromBoxedFunction<&intercept>());
}

}  // namespace

struct KeepProducts::Kept : Interceptor {
  void product(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack& stack) override {
    compute(operation, keys, stack);
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
    products.results.push_back(result._version() == version ? std::move(result) : at::Tensor());
  return products;
}

struct RepeatProducts::Repeated : Interceptor {
  explicit Repeated(Products products) : results(std::move(products.results)) {}
  void product(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack& stack) override {
    TRAINOPT_CHECK(next < results.size());
    const at::Tensor result = std::exchange(results[next++], {});
    if (!result.defined()) return compute(operation, keys, stack);
    torch::jit::drop(stack, operation.schema().arguments().size());
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
