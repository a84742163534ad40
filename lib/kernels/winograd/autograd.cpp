#include "kernels/winograd/autograd.h"

#include "device/tensor.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

namespace trainopt::kernels::winograd {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Convolution : torch::autograd::Function<Convolution> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight) {
    context->save_for_backward({input, weight});
    return convolution(input, weight);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1];
    RECORD_FUNCTION(kConvolutionGradientLabel, std::vector<c10::IValue>({input}));
    return {context->needs_input_grad(0) ? input_gradient(gradients[0], weight) : at::Tensor(),
            context->needs_input_grad(1) ? weight_gradient(gradients[0], input, weight.scalar_type()) : at::Tensor()};
  }
};

}  // namespace

at::Tensor differentiable_convolution(const at::Tensor& input, const at::Tensor& weight) {
  RECORD_FUNCTION(kConvolutionLabel, std::vector<c10::IValue>({input}));
  return Convolution::apply(input, weight);
}

}  // namespace trainopt::kernels::winograd
