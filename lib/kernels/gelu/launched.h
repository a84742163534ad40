// Implements GeluKernels with launches over raw memory: checks arguments, allocates results, and queues on the current
// stream of the device.
#pragma once

#include "kernels/gelu/gelu.h"
#include "kernels/gelu/launch.h"

namespace trainopt::kernels {

/// Tensors are on devices of type `device`; all tensors of one call are on the same device. `launches` must outlive
/// this object.
class LaunchedGeluKernels : public GeluKernels {
 public:
  LaunchedGeluKernels(const device::GeluLaunches& launches, at::DeviceType device)
      : launches_(launches), device_(device) {}

  at::Tensor forward(const at::Tensor& x, const at::Tensor& bias, Gelu form) const override;
  GeluGradients backward(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& bias,
                         Gelu form) const override;

 private:
  device::GeluOperands operands(const at::Tensor& x, const at::Tensor& bias, Gelu form) const;
  const device::GeluLaunches& launches_;
  at::DeviceType device_;
};

}  // namespace trainopt::kernels
