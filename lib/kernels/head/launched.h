// Implements HeadKernels with launches over raw memory: checks arguments, allocates results, and queues on the current
// stream of the device.
#pragma once

#include "kernels/head/head.h"
#include "kernels/head/launch.h"

namespace trainopt::kernels {

/// Tensors are on devices of type `device`; all tensors of one call are on the same device. `launches` must outlive
/// this object.
class LaunchedHeadKernels : public HeadKernels {
 public:
  LaunchedHeadKernels(const device::HeadLaunches& launches, at::DeviceType device)
      : launches_(launches), device_(device) {}

  at::Tensor mean(const at::Tensor& x) const override;
  at::Tensor mean_gradient(const at::Tensor& gradient, int64_t height, int64_t width) const override;
  CrossEntropy cross_entropy(const at::Tensor& logits, const at::Tensor& target, double smoothing) const override;
  void finish_gradient(at::Tensor& gradient, const at::Tensor& upstream) const override;

 private:
  void check_rows(const at::Tensor& rows) const;
  const device::HeadLaunches& launches_;
  at::DeviceType device_;
};

}  // namespace trainopt::kernels
