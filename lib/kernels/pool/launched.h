// PoolKernels out of launches over bare memory: checks what it is given, makes room for results, and queues on the
// device's current stream.
#pragma once

#include "kernels/pool/launch.h"
#include "kernels/pool/pool.h"

namespace trainopt::kernels {

/// Tensors are on devices of type `device`, all of one call on one of them. `launches` must outlive it.
class LaunchedPoolKernels : public PoolKernels {
 public:
  LaunchedPoolKernels(const device::PoolLaunches& launches, at::DeviceType device)
      : launches_(launches), device_(device) {}

  Pooled pool(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift) const override;
  GradientSums sums(const at::Tensor& gradient, const Pooled& pooled, const at::Tensor& mean) const override;
  at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& positions, const at::Tensor& x,
                            const at::Tensor& of_gradient, const at::Tensor& of_x,
                            const at::Tensor& rest) const override;

 private:
  const device::PoolLaunches& launches_;
  at::DeviceType device_;
};

}  // namespace trainopt::kernels
