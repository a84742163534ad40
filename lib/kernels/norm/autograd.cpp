#include "kernels/norm/autograd.h"

#include "device/tensor.h"
#include "kernels/saved_kernels.h"
#include "kernels/tensors.h"

#include <ATen/record_function.h>

namespace trainopt::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class Normalize : public torch::autograd::Function<Normalize> {
  /// The tensors saved for backward, in this order.
  enum Saved : size_t { kX, kMean, kInverse, kScale, kShift, kY };

 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& /*weight*/,
                            const at::Tensor& /*bias*/, const std::optional<at::Tensor>& residual,
                            const NormParameters* norm, bool relu, const NormKernels* kernels) {
    RECORD_FUNCTION(kNormLabel, std::vector<c10::IValue>());
    const at::Tensor x = nhwc(input);
    const Moments moments = kernels->moments(x);
    const ScaleShift by = kernels->scale_shift(moments, values_per_channel(x), *norm);
    const at::Tensor y = kernels->apply(x, by.scale, by.shift, residual ? nhwc(*residual) : at::Tensor(), relu);
    // Without a residual, backward recomputes the mask from x, and y need not be saved here.
    context->save_for_backward({x, moments.mean, by.inverse, by.scale, by.shift, residual && relu ? y : at::Tensor()});
    context->saved_data["relu"] = relu;
    context->saved_data["adds"] = residual.has_value();
    save_kernels(context, *kernels);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    RECORD_FUNCTION(kNormGradientLabel, std::vector<c10::IValue>());
    const auto saved = context->get_saved_variables();
    const auto& kernels = saved_kernels<NormKernels>(context);
    const bool relu = context->saved_data["relu"].toBool(), adds = context->saved_data["adds"].toBool();
    const at::Tensor &x = saved[kX], gradient = nhwc(gradients[0]);
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
    return {of_input, by.of_weight, sums.gradient, adds ? g : at::Tensor(), {}, {}, {}};
  }
};

}  // namespace

at::Tensor normalize(const at::Tensor& input, const NormParameters& norm, const std::optional<at::Tensor>& residual,
                     bool relu, const NormKernels& kernels) {
  return Normalize::apply(input, norm.weight, norm.bias, residual, &norm, relu, &kernels);
}

}  // namespace trainopt::kernels
