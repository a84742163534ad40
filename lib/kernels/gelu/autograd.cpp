#include "kernels/gelu/gelu.h"

#include "device/differentiable.h"
#include "device/tensor.h"

#include <ATen/record_function.h>

namespace trainopt::kernels {

at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias, Gelu form, const GeluKernels& kernels) {
  const auto forward = [&](std::vector<at::Tensor>& saved) {
    RECORD_FUNCTION(kGeluLabel, std::vector<c10::IValue>());
    saved = {x.contiguous(), bias};
    return kernels.forward(saved[0], bias, form);
  };
  const auto backward = [&kernels, form](const BackwardCall& call) -> std::vector<at::Tensor> {
    RECORD_FUNCTION(kGeluGradientLabel, std::vector<c10::IValue>());
    const GeluGradients result = kernels.backward(call.gradient.contiguous(), call.saved[0], call.saved[1], form);
    return {result.of_x, result.of_bias};
  };
  return differentiable({x, bias}, forward, backward);
}

}  // namespace trainopt::kernels
