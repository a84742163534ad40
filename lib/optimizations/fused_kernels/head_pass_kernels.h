// HeadKernels out of passes over bare memory, as PassKernels are NormKernels.
#pragma once

#include "optimizations/fused_kernels/cuda/head_passes.h"
#include "optimizations/fused_kernels/head_kernels.h"

namespace trainopt::fused_kernels {

/// Tensors are on devices of type `device`, all of one call on one of them. `passes` must outlive it.
class HeadPassKernels : public HeadKernels {
 public:
  HeadPassKernels(const cuda::HeadPasses& passes, at::DeviceType device) : passes_(passes), device_(device) {}

  at::Tensor mean(const at::Tensor& x) const override;
  at::Tensor mean_gradient(const at::Tensor& gradient, int64_t height, int64_t width) const override;
  CrossEntropy cross_entropy(const at::Tensor& logits, const at::Tensor& target, double smoothing) const override;
  void finish_gradient(at::Tensor& gradient, const at::Tensor& upstream) const override;

 private:
  void check_rows(const at::Tensor& rows) const;
  const cuda::HeadPasses& passes_;
  at::DeviceType device_;
};

}  // namespace trainopt::fused_kernels
