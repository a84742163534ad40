#include "kernels/head/head.h"

#include "device/differentiable.h"
#include "device/tensor.h"
#include "kernels/tensors.h"

#include <ATen/record_function.h>

namespace trainopt::kernels {

at::Tensor average_pool(const at::Tensor& input, const HeadKernels& kernels) {
  const auto forward = [&](std::vector<at::Tensor>&) {
    RECORD_FUNCTION(kAveragePoolLabel, std::vector<c10::IValue>());
    return kernels.mean(nhwc(input));
  };
  const auto backward = [&kernels, height = input.size(2),
                         width = input.size(3)](const BackwardCall& call) -> std::vector<at::Tensor> {
    RECORD_FUNCTION(kAveragePoolGradientLabel, std::vector<c10::IValue>());
    return {kernels.mean_gradient(call.gradient.contiguous(), height, width)};
  };
  return differentiable({input}, forward, backward);
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target, double smoothing,
                         const HeadKernels& kernels) {
  const auto forward = [&](std::vector<at::Tensor>& saved) {
    RECORD_FUNCTION(kCrossEntropyLabel, std::vector<c10::IValue>());
    CrossEntropy result = kernels.cross_entropy(logits.contiguous(), target.contiguous(), smoothing);
    saved = {result.gradient};
    return result.loss;
  };
  const auto backward = [&kernels](const BackwardCall& call) -> std::vector<at::Tensor> {
    RECORD_FUNCTION(kCrossEntropyGradientLabel, std::vector<c10::IValue>());
    at::Tensor gradient = call.saved[0];
    kernels.finish_gradient(gradient, call.gradient);
    // Changed in place: libtorch must refuse to use it again.
    gradient.unsafeGetTensorImpl()->bump_version();
    return {gradient};
  };
  return differentiable({logits}, forward, backward);
}

}  // namespace trainopt::kernels
