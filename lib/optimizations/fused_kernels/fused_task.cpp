#include "optimizations/fused_kernels/fused_task.h"

#include "kernels/head/autograd.h"

namespace trainopt::fused_kernels {

TaskOutput FusedClassificationTask::loss(Model& model, const at::Tensor& input, const at::Tensor& target,
                                         const ForwardContext& context) const {
  at::Tensor outputs = model.forward(input, context);
  at::Tensor loss = kernels::cross_entropy(outputs, target, label_smoothing_, kernels_);
  return {std::move(loss), std::move(outputs)};
}

}  // namespace trainopt::fused_kernels
