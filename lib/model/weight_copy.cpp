#include "model/weight_copy.h"

#include "device/tensor.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

namespace trainopt {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A differentiable cast whose result already exists.
struct FromCopy : torch::autograd::Function<FromCopy> {
  static at::Tensor forward(AutogradContext*, const at::Tensor&, const at::Tensor& copy) {
    return copy.variable_data();
  }
  static variable_list backward(AutogradContext*, const variable_list& gradients) {
    return {gradients[0].to(at::kFloat), at::Tensor()};
  }
};

}  // namespace

at::Tensor as_autocast(const at::Tensor& parameter, const WeightCopy& copy) {
  const auto device = parameter.device().type();
  if (!copy->defined() || !at::autocast::is_autocast_enabled(device) ||
      at::autocast::get_autocast_dtype(device) != copy->scalar_type())
    return parameter;
  return at::GradMode::is_enabled() ? FromCopy::apply(parameter, *copy) : *copy;
}

}  // namespace trainopt
