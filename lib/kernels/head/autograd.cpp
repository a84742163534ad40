#include "kernels/head/autograd.h"

#include "device/tensor.h"
#include "kernels/saved_kernels.h"
#include "kernels/tensors.h"

#include <ATen/record_function.h>

namespace trainopt::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class AveragePool : public torch::autograd::Function<AveragePool> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const HeadKernels* kernels) {
    RECORD_FUNCTION(kAveragePoolLabel, std::vector<c10::IValue>());
    context->saved_data["height"] = input.size(2);
    context->saved_data["width"] = input.size(3);
    save_kernels(context, *kernels);
    return kernels->mean(nhwc(input));
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    RECORD_FUNCTION(kAveragePoolGradientLabel, std::vector<c10::IValue>());
    const auto& kernels = saved_kernels<HeadKernels>(context);
    return {kernels.mean_gradient(gradients[0].contiguous(), context->saved_data["height"].toInt(),
                                  context->saved_data["width"].toInt()),
            {}};
  }
};

class LossWithGradient : public torch::autograd::Function<LossWithGradient> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& target,
                            double smoothing, const HeadKernels* kernels) {
    RECORD_FUNCTION(kCrossEntropyLabel, std::vector<c10::IValue>());
    CrossEntropy result = kernels->cross_entropy(logits.contiguous(), target.contiguous(), smoothing);
    context->save_for_backward({result.gradient});
    save_kernels(context, *kernels);
    return result.loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    RECORD_FUNCTION(kCrossEntropyGradientLabel, std::vector<c10::IValue>());
    const auto& kernels = saved_kernels<HeadKernels>(context);
    at::Tensor gradient = context->get_saved_variables()[0];
    kernels.finish_gradient(gradient, gradients[0]);
    // Changed in place: libtorch must refuse to use it again.
    gradient.unsafeGetTensorImpl()->bump_version();
    return {gradient, {}, {}, {}};
  }
};

}  // namespace

at::Tensor average_pool(const at::Tensor& input, const HeadKernels& kernels) {
  return AveragePool::apply(input, &kernels);
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target, double smoothing,
                         const HeadKernels& kernels) {
  return LossWithGradient::apply(logits, target, smoothing, &kernels);
}

}  // namespace trainopt::kernels
