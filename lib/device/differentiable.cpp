#include "device/differentiable.h"

#include "base/error.h"
#include "device/tensor.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <set>
#include <utility>

namespace trainopt {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kBackward = "backward";

/// Keeps a backward function in an autograd node.
struct StoredBackward : torch::CustomClassHolder {
  StoredBackward(BackwardFunction f, size_t n) : function(std::move(f)), inputs(n) {}
  const BackwardFunction function;
  const size_t inputs;
};

struct Operation : torch::autograd::Function<Operation> {
  static variable_list forward(AutogradContext* context, at::TensorList inputs, const ForwardsFunction* forward,
                               BackwardFunction* backward) {
    variable_list saved, outputs = (*forward)(saved);
    context->save_for_backward(std::move(saved));
    // The gradient of a single output always arrives; of several, those that do not arrive stay undefined.
    context->set_materialize_grads(outputs.size() == 1);
    context->saved_data[kBackward] =
        c10::IValue::make_capsule(c10::make_intrusive<StoredBackward>(std::move(*backward), inputs.size()));
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto capsule = context->saved_data[kBackward].toCapsule();
    const auto& stored = static_cast<const StoredBackward&>(*capsule);
    BackwardCall call{
        .saved = context->get_saved_variables(), .gradient = gradients[0], .gradients = gradients, .needed = {}};
    for (size_t i = 0; i < stored.inputs; ++i) call.needed.push_back(context->needs_input_grad(i));
    variable_list results = stored.function(std::move(call));
    TRAINOPT_CHECK_EQUAL(results.size(), stored.inputs);
    results.resize(stored.inputs + 2);  // apply()'s other two arguments have no gradient
    return results;
  }
};

}  // namespace

at::Tensor differentiable(const std::vector<at::Tensor>& inputs, const ForwardFunction& forward,
                          BackwardFunction backward) {
  const ForwardsFunction one = [&](std::vector<at::Tensor>& saved) { return std::vector<at::Tensor>{forward(saved)}; };
  return differentiable_outputs(inputs, one, std::move(backward))[0];
}

std::vector<at::Tensor> differentiable_outputs(const std::vector<at::Tensor>& inputs, const ForwardsFunction& forward,
                                               BackwardFunction backward) {
  return Operation::apply(at::TensorList(inputs), &forward, &backward);
}

std::vector<at::Tensor> gradients_of(const at::Tensor& output, const at::Tensor& gradient,
                                     const std::vector<at::Tensor>& inputs, bool keeps_graph) {
  return torch::autograd::grad({output}, inputs, {gradient}, /*retain_graph=*/keeps_graph, /*create_graph=*/false,
                               /*allow_unused=*/true);
}

bool has_own_backward(const at::Tensor& output) {
  std::set<const torch::autograd::Node*> seen;
  std::vector<const torch::autograd::Node*> left{output.grad_fn().get()};
  while (!left.empty()) {
    const torch::autograd::Node* node = left.back();
    left.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    if (dynamic_cast<const torch::autograd::CppNode<Operation>*>(node) != nullptr) return true;
    for (const auto& edge : node->next_edges()) left.push_back(edge.function.get());
  }
  return false;
}

namespace {

/// Between autograd and the kernels. libtorch reserves it for fake tensors of another project and does not use it.
constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

thread_local BelowAutograd* newest = nullptr;

}  // namespace

BelowAutograd::BelowAutograd() : outer_(std::exchange(newest, this)) {
  if (!outer_) c10::impl::tls_set_dispatch_key_included(kKey, true);
}

BelowAutograd::~BelowAutograd() {
  newest = outer_;
  if (!outer_) c10::impl::tls_set_dispatch_key_included(kKey, false);
}

void BelowAutograd::compute(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack& stack) const {
  if (outer_) return outer_->operation(handle, keys, stack);
  const c10::impl::ExcludeDispatchKeyGuard nested(kKey);
  handle.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), &stack);
}

/// What libtorch calls.
struct Entrance {
  static void enter(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, std::vector<c10::IValue>* stack) {
    newest->operation(handle, keys, *stack);
  }
};

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&Entrance::enter>());
}

}  // namespace trainopt
