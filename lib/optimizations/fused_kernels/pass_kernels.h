// NormKernels out of passes over bare memory: checks what it is given, makes room for results, and queues on the
// device's current stream.
#pragma once

#include "optimizations/fused_kernels/cuda/passes.h"
#include "optimizations/fused_kernels/norm_kernels.h"

namespace trainopt::fused_kernels {

/// Tensors are on devices of type `device`, all of one call on one of them. `passes` must outlive it.
class PassKernels : public NormKernels {
 public:
  PassKernels(const cuda::Passes& passes, at::DeviceType device) : passes_(passes), device_(device) {}

  Moments moments(const at::Tensor& x) const override;
  at::Tensor apply(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift, const at::Tensor& residual,
                   bool relu) const override;
  Line line(const Moments& moments, int64_t count, const BatchNorm2d& norm) const override;
  Coefficients coefficients(const GradientSums& sums, const Line& line, const at::Tensor& mean,
                            int64_t count) const override;
  GradientSums sums(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean) const override;
  GradientSums sums_through_relu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean,
                                 const at::Tensor& scale, const at::Tensor& shift) const override;
  GradientSums sums_through_output(const at::Tensor& gradient, const at::Tensor& y, const at::Tensor& x,
                                   const at::Tensor& mean, at::Tensor& g) const override;
  at::Tensor input_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& of_gradient,
                            const at::Tensor& of_x, const at::Tensor& rest) const override;
  at::Tensor input_gradient_through_relu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& of_gradient,
                                         const at::Tensor& of_x, const at::Tensor& rest, const at::Tensor& scale,
                                         const at::Tensor& shift) const override;
  Pooled pool(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift) const override;
  GradientSums sums_through_pool(const at::Tensor& gradient, const Pooled& pooled,
                                 const at::Tensor& mean) const override;
  at::Tensor input_gradient_through_pool(const at::Tensor& gradient, const at::Tensor& places, const at::Tensor& x,
                                         const at::Tensor& of_gradient, const at::Tensor& of_x,
                                         const at::Tensor& rest) const override;

 private:
  class Call;
  const cuda::Passes& passes_;
  at::DeviceType device_;
};

}  // namespace trainopt::fused_kernels
