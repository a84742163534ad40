#include "kernels/pool/autograd.h"

#include "device/tensor.h"
#include "kernels/saved_kernels.h"
#include "kernels/tensors.h"

#include <ATen/record_function.h>

namespace trainopt::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class NormalizeAndPool : public torch::autograd::Function<NormalizeAndPool> {
  /// The tensors saved for backward, in this order.
  enum Saved : size_t { kX, kMean, kInverse, kScale, kPositions, kChosen };

 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& /*weight*/,
                            const at::Tensor& /*bias*/, const NormParameters* norm, const NormKernels* norms,
                            const PoolKernels* pools) {
    RECORD_FUNCTION(kNormLabel, std::vector<c10::IValue>());
    const at::Tensor x = nhwc(input);
    const Moments moments = norms->moments(x);
    const ScaleShift by = norms->scale_shift(moments, values_per_channel(x), *norm);
    const Pooled pooled = pools->pool(x, by.scale, by.shift);
    context->save_for_backward({x, moments.mean, by.inverse, by.scale, pooled.positions, pooled.chosen});
    save_kernels(context, *norms, "norms");
    save_kernels(context, *pools, "pools");
    return pooled.values;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    RECORD_FUNCTION(kNormGradientLabel, std::vector<c10::IValue>());
    const auto saved = context->get_saved_variables();
    const auto& norms = saved_kernels<NormKernels>(context, "norms");
    const auto& pools = saved_kernels<PoolKernels>(context, "pools");
    const at::Tensor &x = saved[kX], &positions = saved[kPositions], gradient = nhwc(gradients[0]);
    const GradientSums sums =
        pools.sums(gradient, {.values = {}, .positions = positions, .chosen = saved[kChosen]}, saved[kMean]);
    const Coefficients by =
        norms.coefficients(sums, {saved[kInverse], saved[kScale], {}}, saved[kMean], values_per_channel(x));
    return {pools.input_gradient(gradient, positions, x, saved[kScale], by.of_x, by.rest),
            by.of_weight,
            sums.gradient,
            {},
            {},
            {}};
  }
};

}  // namespace

at::Tensor normalize_and_pool(const at::Tensor& input, const NormParameters& norm, const NormKernels& norms,
                              const PoolKernels& pools) {
  return NormalizeAndPool::apply(input, norm.weight, norm.bias, &norm, &norms, &pools);
}

}  // namespace trainopt::kernels
