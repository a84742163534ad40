// Batch-norm, alone or combined with the operations that follow it in a network's blocks.
#pragma once

#include "model/layers.h"

namespace trainopt {

/// Inputs and residuals are not overwritten. In training, running statistics are updated in place and
/// num_batches_tracked grows by one, without synchronising with the host.
class BatchNormOperations {
 public:
  virtual ~BatchNormOperations() = default;
  virtual at::Tensor batch_norm(const at::Tensor& input, const BatchNorm2d& norm,
                                const ForwardContext& context) const = 0;
  virtual at::Tensor batch_norm_relu(const at::Tensor& input, const BatchNorm2d& norm,
                                     const ForwardContext& context) const = 0;
  /// relu(batch_norm(input) + residual)
  virtual at::Tensor batch_norm_add_relu(const at::Tensor& input, const BatchNorm2d& norm, const at::Tensor& residual,
                                         const ForwardContext& context) const = 0;
  /// max-pool(relu(batch_norm(input))), 3×3 with stride 2 and padding 1
  virtual at::Tensor stem_pool(const at::Tensor& input, const BatchNorm2d& norm,
                               const ForwardContext& context) const = 0;
};

/// The ATen operations that torchvision uses, one by one.
class PlainBatchNormOperations : public BatchNormOperations {
 public:
  at::Tensor batch_norm(const at::Tensor& input, const BatchNorm2d& norm, const ForwardContext& context) const override;
  at::Tensor batch_norm_relu(const at::Tensor& input, const BatchNorm2d& norm,
                             const ForwardContext& context) const override;
  at::Tensor batch_norm_add_relu(const at::Tensor& input, const BatchNorm2d& norm, const at::Tensor& residual,
                                 const ForwardContext& context) const override;
  at::Tensor stem_pool(const at::Tensor& input, const BatchNorm2d& norm, const ForwardContext& context) const override;
};

}  // namespace trainopt
