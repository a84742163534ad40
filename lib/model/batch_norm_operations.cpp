#include "model/batch_norm_operations.h"

#include "device/tensor.h"

namespace trainopt {

at::Tensor PlainBatchNormOperations::batch_norm(const at::Tensor& input, const BatchNorm2d& norm,
                                                const ForwardContext& context) const {
  if (context.training) {
    at::Tensor batches = norm.num_batches_tracked;
    batches.add_(1);
  }
  return at::batch_norm(input, norm.weight, norm.bias, norm.running_mean, norm.running_var, context.training,
                        BatchNorm2d::kMomentum, BatchNorm2d::kEpsilon, /*cudnn_enabled=*/true);
}

// In place: batch-norm's backward reads its input and ReLU's reads its output, so nothing needs the overwritten tensor.
at::Tensor PlainBatchNormOperations::batch_norm_relu(const at::Tensor& input, const BatchNorm2d& norm,
                                                     const ForwardContext& context) const {
  return batch_norm(input, norm, context).relu_();
}

at::Tensor PlainBatchNormOperations::batch_norm_add_relu(const at::Tensor& input, const BatchNorm2d& norm,
                                                         const at::Tensor& residual,
                                                         const ForwardContext& context) const {
  return batch_norm(input, norm, context).add_(residual).relu_();
}

at::Tensor PlainBatchNormOperations::stem_pool(const at::Tensor& input, const BatchNorm2d& norm,
                                               const ForwardContext& context) const {
  return at::max_pool2d(batch_norm_relu(input, norm, context), 3, 2, 1);
}

}  // namespace trainopt
