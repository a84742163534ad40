#include "model/weight_copy.h"

#include "device/differentiable.h"
#include "device/tensor.h"

#include <ATen/autocast_mode.h>

namespace trainopt {
namespace {

/// A differentiable cast whose result already exists.
at::Tensor from_copy(const at::Tensor& parameter, const at::Tensor& copy) {
  return differentiable({parameter}, [&](std::vector<at::Tensor>&) { return copy.variable_data(); },
                        [](const BackwardCall& call) -> std::vector<at::Tensor> {
                          return {call.gradient.to(at::kFloat)};
                        });
}

}  // namespace

at::Tensor as_autocast(const at::Tensor& parameter, const WeightCopy& copy) {
  const auto device = parameter.device().type();
  if (!copy->defined() || !at::autocast::is_autocast_enabled(device) ||
      at::autocast::get_autocast_dtype(device) != copy->scalar_type())
    return parameter;
  return at::GradMode::is_enabled() ? from_copy(parameter, *copy) : *copy;
}

}  // namespace trainopt
