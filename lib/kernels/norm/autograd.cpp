#include "kernels/norm/autograd.h"

#include "device/differentiable.h"
#include "device/tensor.h"
#include "kernels/tensors.h"

#include <ATen/record_function.h>

namespace trainopt::kernels {
namespace {

/// The tensors saved for backward, in this order.
enum Saved : size_t { kX, kMean, kInverse, kScale, kShift, kY };

}  // namespace

at::Tensor normalize(const at::Tensor& input, const NormParameters& norm, const std::optional<at::Tensor>& residual,
                     bool relu, const NormKernels& kernels) {
  std::vector<at::Tensor> inputs{input, norm.weight, norm.bias};
  const bool adds = residual.has_value();
  if (adds) inputs.push_back(*residual);

  const auto forward = [&](std::vector<at::Tensor>& saved) {
    RECORD_FUNCTION(kNormLabel, std::vector<c10::IValue>());
    const at::Tensor x = nhwc(input);
    const Moments moments = kernels.moments(x);
    const ScaleShift by = kernels.scale_shift(moments, values_per_channel(x), norm);
    const at::Tensor y = kernels.apply(x, by.scale, by.shift, adds ? nhwc(*residual) : at::Tensor(), relu);
    // Without a residual, backward recomputes the mask from x, and y need not be saved here.
    saved = {x, moments.mean, by.inverse, by.scale, by.shift, adds && relu ? y : at::Tensor()};
    return y;
  };

  const auto backward = [&kernels, relu, adds](const BackwardCall& call) -> std::vector<at::Tensor> {
    RECORD_FUNCTION(kNormGradientLabel, std::vector<c10::IValue>());
    const auto& saved = call.saved;
    const at::Tensor &x = saved[kX], gradient = nhwc(call.gradient);
    at::Tensor g = gradient;
    const GradientSums sums = !relu ? kernels.sums(gradient, x, saved[kMean])
                              : adds
                                  ? kernels.sums_through_output(gradient, saved[kY], x, saved[kMean], g)
                                  : kernels.sums_through_relu(gradient, x, saved[kMean], saved[kScale], saved[kShift]);
    const Coefficients by =
        kernels.coefficients(sums, {saved[kInverse], saved[kScale], {}}, saved[kMean], values_per_channel(x));
    const at::Tensor of_input = relu && !adds
                                    ? kernels.input_gradient_through_relu(gradient, x, saved[kScale], by.of_x, by.rest,
                                                                          saved[kScale], saved[kShift])
                                    : kernels.input_gradient(g, x, saved[kScale], by.of_x, by.rest);
    std::vector<at::Tensor> gradients{of_input, by.of_weight, sums.gradient};
    if (adds) gradients.push_back(g);
    return gradients;
  };

  return differentiable(inputs, forward, backward);
}

}  // namespace trainopt::kernels
