#include "kernels/winograd/autograd.h"

#include "device/differentiable.h"
#include "device/tensor.h"

#include <ATen/record_function.h>

namespace trainopt::kernels::winograd {

at::Tensor differentiable_convolution(const at::Tensor& input, const at::Tensor& weight, Products products) {
  RECORD_FUNCTION(kConvolutionLabel, std::vector<c10::IValue>({input}));
  const auto forward = [&](std::vector<at::Tensor>& saved) {
    saved = {input, weight};
    return convolution(input, weight, products);
  };
  const auto backward = [products](const BackwardCall& call) -> std::vector<at::Tensor> {
    const at::Tensor &x = call.saved[0], &w = call.saved[1];
    RECORD_FUNCTION(kConvolutionGradientLabel, std::vector<c10::IValue>({x}));
    return {call.needed[0] ? input_gradient(call.gradient, w, products) : at::Tensor(),
            call.needed[1] ? weight_gradient(call.gradient, x, w.scalar_type(), products) : at::Tensor()};
  };
  return differentiable({input, weight}, forward, backward);
}

}  // namespace trainopt::kernels::winograd
