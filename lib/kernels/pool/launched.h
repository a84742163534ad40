// Implements PoolKernels with launches over raw memory: checks arguments, allocates results, and queues on the current
// stream of the device.
#pragma once

#include "kernels/pool/launch.h"
#include "kernels/pool/pool.h"

namespace trainopt::kernels {

/// Tensors are on devices of type `device`; all tensors of one call are on the same device. `launches` must outlive
/// this object.
class LaunchedPoolKernels : public PoolKernels {
 public:
  LaunchedPoolKernels(const device::PoolLaunches& launches, at::DeviceType device)
      : launches_(launches), device_(device) {}

  Pooled pool(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift) const override;
  Coefficients coefficients(const at::Tensor& gradient, const Pooled& pooled, const Statistics& by,
                            int64_t count) const override;
  at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& positions, const at::Tensor& x,
                            const Statistics& by, const Coefficients& coefficients) const override;

 private:
  const device::PoolLaunches& launches_;
  at::DeviceType device_;
};

}  // namespace trainopt::kernels
