#include "kernels/norm/norm.h"

#include "device/differentiable.h"
#include "device/tensor.h"
#include "kernels/tensors.h"

#include <ATen/record_function.h>

namespace trainopt::kernels {

at::Tensor normalize(const at::Tensor& input, const NormParameters& norm, const std::optional<at::Tensor>& residual,
                     bool relu, const NormKernels& kernels) {
  // The tensors saved for backward, in this order.
  enum Saved : size_t { kX, kMean, kInverse, kScale, kShift, kY };
  std::vector<at::Tensor> inputs{input, norm.weight, norm.bias};
  const bool adds = residual.has_value();
  if (adds) inputs.push_back(*residual);

  const auto forward = [&](std::vector<at::Tensor>& saved) {
    RECORD_FUNCTION(kNormLabel, std::vector<c10::IValue>());
    const at::Tensor x = nhwc(input);
    const Statistics by = kernels.statistics(x, norm);
    const at::Tensor y = kernels.apply(x, by.scale, by.shift, adds ? nhwc(*residual) : at::Tensor(), relu);
    // Without a residual, backward recomputes the mask from x, and y need not be saved here.
    saved = {x, by.mean, by.inverse, by.scale, by.shift, adds && relu ? y : at::Tensor()};
    return y;
  };

  const auto backward = [&kernels, relu, adds](const BackwardCall& call) -> std::vector<at::Tensor> {
    RECORD_FUNCTION(kNormGradientLabel, std::vector<c10::IValue>());
    const auto& saved = call.saved;
    const at::Tensor &x = saved[kX], gradient = nhwc(call.gradient);
    const Statistics by{saved[kMean], saved[kInverse], saved[kScale], saved[kShift]};
    at::Tensor g = gradient;
    const Coefficients coefficients = !relu  ? kernels.coefficients(gradient, x, by)
                                      : adds ? kernels.coefficients_through_output(gradient, saved[kY], x, by, g)
                                             : kernels.coefficients_through_relu(gradient, x, by);
    const at::Tensor of_input = relu && !adds ? kernels.input_gradient_through_relu(gradient, x, by, coefficients)
                                              : kernels.input_gradient(g, x, by, coefficients);
    std::vector<at::Tensor> gradients{of_input, coefficients.of_weight, coefficients.of_bias};
    if (adds) gradients.push_back(g);
    return gradients;
  };

  return differentiable(inputs, forward, backward);
}

}  // namespace trainopt::kernels
