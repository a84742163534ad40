// Implements NormKernels with launches over raw memory: checks arguments, allocates results, and queues on the current
// stream of the device.
#pragma once

#include "kernels/norm/launch.h"
#include "kernels/norm/norm.h"

namespace trainopt::kernels {

/// Tensors are on devices of type `device`; all tensors of one call are on the same device. `launches` must outlive
/// this object.
class LaunchedNormKernels : public NormKernels {
 public:
  LaunchedNormKernels(const device::NormLaunches& launches, at::DeviceType device)
      : launches_(launches), device_(device) {}

  Statistics statistics(const at::Tensor& x, const NormParameters& norm) const override;
  at::Tensor apply(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& residual,
                   bool relu) const override;
  Coefficients coefficients(const at::Tensor& gradient, const at::Tensor& x, const Statistics& by) const override;
  Coefficients coefficients_through_relu(const at::Tensor& gradient, const at::Tensor& x,
                                         const Statistics& by) const override;
  Coefficients coefficients_through_output(const at::Tensor& gradient, const at::Tensor& y, const at::Tensor& x,
                                           const Statistics& by, at::Tensor& g) const override;
  at::Tensor input_gradient(const at::Tensor& g, const at::Tensor& x, const Statistics& by,
                            const Coefficients& coefficients) const override;
  at::Tensor input_gradient_through_relu(const at::Tensor& gradient, const at::Tensor& x, const Statistics& by,
                                         const Coefficients& coefficients) const override;

 private:
  const device::NormLaunches& launches_;
  at::DeviceType device_;
};

}  // namespace trainopt::kernels
