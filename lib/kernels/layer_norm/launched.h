// Implements LayerNormKernels with launches over raw memory: checks arguments, allocates results, and queues on the
// current stream of the device.
#pragma once

#include "kernels/layer_norm/launch.h"
#include "kernels/layer_norm/layer_norm.h"

namespace trainopt::kernels {

/// Tensors are on devices of type `device`; all tensors of one call are on the same device. `launches` must outlive
/// this object.
class LaunchedLayerNormKernels : public LayerNormKernels {
 public:
  LaunchedLayerNormKernels(const device::LayerNormLaunches& launches, at::DeviceType device)
      : launches_(launches), device_(device) {}

  LayerNormResult forward(const at::Tensor& residual, const at::Tensor& branch, const LayerNormParameters& norm,
                          at::ScalarType type) const override;
  LayerNormGradients backward(const Upstream& gradients, const at::Tensor& sum, const RowStatistics& by,
                              const at::Tensor& weight, at::ScalarType residual,
                              std::optional<at::ScalarType> branch) const override;

 private:
  /// Checks that the tensor has the sizes and the device of `like`; none if it is undefined.
  device::ConstSamples samples(const at::Tensor& tensor, const at::Tensor& like) const;
  const device::LayerNormLaunches& launches_;
  at::DeviceType device_;
};

}  // namespace trainopt::kernels
