// Implements LinearCrossEntropyKernels with the launches of the loss in head/: queues on the current stream of the
// device.
#pragma once

#include "kernels/head/launch.h"
#include "kernels/linear_cross_entropy/pieces.h"

namespace trainopt::kernels {

/// Tensors are on devices of type `device`. `launches` must outlive this object.
class LaunchedLinearCrossEntropy : public LinearCrossEntropyInPieces {
 public:
  LaunchedLinearCrossEntropy(const device::HeadLaunches& launches, at::DeviceType device)
      : launches_(launches), device_(device) {}

 protected:
  void check(const at::Tensor& hidden, const at::Tensor& target, int64_t classes) const override;
  void losses(const Piece& piece) const override;
  void mean(const at::Tensor& losses, const at::Tensor& target, LinearCrossEntropy& result) const override;

 private:
  const device::HeadLaunches& launches_;
  at::DeviceType device_;
};

}  // namespace trainopt::kernels
