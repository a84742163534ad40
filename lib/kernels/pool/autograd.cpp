#include "kernels/pool/pool.h"

#include "device/differentiable.h"
#include "device/tensor.h"
#include "kernels/tensors.h"

#include <ATen/record_function.h>

namespace trainopt::kernels {

at::Tensor normalize_and_pool(const at::Tensor& input, const NormParameters& norm, const NormKernels& norms,
                              const PoolKernels& pools) {
  // The tensors saved for backward, in this order.
  enum Saved : size_t { kX, kMean, kInverse, kScale, kPositions, kChosen };
  const auto forward = [&](std::vector<at::Tensor>& saved) {
    RECORD_FUNCTION(kNormLabel, std::vector<c10::IValue>());
    const at::Tensor x = nhwc(input);
    const Statistics by = norms.statistics(x, norm);
    const Pooled pooled = pools.pool(x, by.scale, by.shift);
    saved = {x, by.mean, by.inverse, by.scale, pooled.positions, pooled.chosen};
    return pooled.values;
  };

  const auto backward = [&pools](const BackwardCall& call) -> std::vector<at::Tensor> {
    RECORD_FUNCTION(kNormGradientLabel, std::vector<c10::IValue>());
    const auto& saved = call.saved;
    const at::Tensor &x = saved[kX], &positions = saved[kPositions], gradient = nhwc(call.gradient);
    const Statistics by{saved[kMean], saved[kInverse], saved[kScale], {}};
    const Coefficients coefficients = pools.coefficients(
        gradient, {.values = {}, .positions = positions, .chosen = saved[kChosen]}, by, values_per_channel(x));
    return {pools.input_gradient(gradient, positions, x, by, coefficients), coefficients.of_weight,
            coefficients.of_bias};
  };

  return differentiable({input, norm.weight, norm.bias}, forward, backward);
}

}  // namespace trainopt::kernels
