// The composite operations inside a network's blocks. This is the one seam for fused kernels: another implementation
// computes the same from the same layers, and parameter names do not change.
#pragma once

#include "model/layers.h"

namespace trainopt {

/// Each may overwrite its tensor arguments' memory only where said. In training, running statistics are updated in
/// place and num_batches_tracked grows by one, without asking the host.
class BlockOperations {
 public:
  virtual ~BlockOperations() = default;
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
  /// linear(mean over height and width)
  virtual at::Tensor head(const at::Tensor& input, const Linear& linear, const ForwardContext& context) const = 0;
};

/// What torchvision computes, operation by operation.
class PlainBlockOperations : public BlockOperations {
 public:
  at::Tensor batch_norm(const at::Tensor& input, const BatchNorm2d& norm, const ForwardContext& context) const override;
  at::Tensor batch_norm_relu(const at::Tensor& input, const BatchNorm2d& norm,
                             const ForwardContext& context) const override;
  at::Tensor batch_norm_add_relu(const at::Tensor& input, const BatchNorm2d& norm, const at::Tensor& residual,
                                 const ForwardContext& context) const override;
  at::Tensor stem_pool(const at::Tensor& input, const BatchNorm2d& norm, const ForwardContext& context) const override;
  at::Tensor head(const at::Tensor& input, const Linear& linear, const ForwardContext& context) const override;
};

}  // namespace trainopt
