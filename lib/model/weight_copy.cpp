#include "model/weight_copy.h"

#include "device/autocast.h"
#include "device/differentiable.h"
#include "device/tensor.h"

namespace trainopt {
namespace {

/// A differentiable cast whose result already exists.
at::Tensor from_copy(const at::Tensor& parameter, const at::Tensor& copy) {
  return differentiable(
      {parameter}, [&](std::vector<at::Tensor>&) { return copy.variable_data(); },
      [](const BackwardCall& call) -> std::vector<at::Tensor> { return {call.gradient.to(at::kFloat)}; });
}

}  // namespace

at::Tensor as_autocast(const at::Tensor& parameter, const WeightCopy& copy) {
  if (!copy->defined() || autocast_type(parameter.device().type()) != copy->scalar_type()) return parameter;
  return at::GradMode::is_enabled() ? from_copy(parameter, *copy) : *copy;
}

}  // namespace trainopt
