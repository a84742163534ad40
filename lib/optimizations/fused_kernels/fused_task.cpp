#include "optimizations/fused_kernels/fused_task.h"

#include "optimizations/fused_kernels/kept_kernels.h"
#include "optimizations/fused_kernels/labels.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

namespace trainopt::fused_kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class LossWithGradient : public torch::autograd::Function<LossWithGradient> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& target,
                            double smoothing, const HeadKernels* kernels) {
    RECORD_FUNCTION(kCrossEntropyLabel, std::vector<c10::IValue>());
    CrossEntropy result = kernels->cross_entropy(logits.contiguous(), target.contiguous(), smoothing);
    context->save_for_backward({result.gradient});
    keep_kernels(context, *kernels);
    return result.loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    RECORD_FUNCTION(kCrossEntropyGradientLabel, std::vector<c10::IValue>());
    const auto& kernels = kept_kernels<HeadKernels>(context);
    at::Tensor gradient = context->get_saved_variables()[0];
    kernels.finish_gradient(gradient, gradients[0]);
    gradient.unsafeGetTensorImpl()
        ->bump_version();  // it is another tensor now, as libtorch must know if it is asked for it again
    return {gradient, {}, {}, {}};
  }
};

}  // namespace

at::Tensor fused_cross_entropy(const at::Tensor& logits, const at::Tensor& target, double smoothing,
                               const HeadKernels& kernels) {
  return LossWithGradient::apply(logits, target, smoothing, &kernels);
}

TaskOutput FusedClassificationTask::loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                                         const ForwardContext& context) const {
  at::Tensor outputs = model.forward(input, context);
  at::Tensor loss = fused_cross_entropy(outputs, target, label_smoothing_, kernels_);
  return {std::move(loss), std::move(outputs)};
}

}  // namespace trainopt::fused_kernels
