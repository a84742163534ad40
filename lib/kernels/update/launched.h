// Implements UpdateKernels with launches over raw memory: checks arguments, allocates results, and queues on the
// current stream of the device.
#pragma once

#include "kernels/update/launch.h"
#include "kernels/update/update.h"

namespace trainopt::kernels::update {

/// Tensors are on devices of type `device`; all tensors of one call are on the same device. `launches` must outlive
/// this object.
class LaunchedUpdateKernels : public UpdateKernels {
 public:
  LaunchedUpdateKernels(const UpdateLaunches& launches, at::DeviceType device) : launches_(launches), device_(device) {}

  int64_t sgd(const SgdRule& rule, const Tensors& tensors, const Settings& settings) const override;
  int64_t adam(const AdamRule& rule, const at::Tensor& updates, const Tensors& tensors,
               const Settings& settings) const override;
  int64_t lion(const LionRule& rule, const Tensors& tensors, const Settings& settings) const override;
  int64_t norms(const Tensors& tensors, const Settings& settings, const at::Tensor& squares) const override;
  int64_t lamb_moments(const LambRule& rule, const at::Tensor& updates, const Tensors& tensors,
                       const Settings& settings, const at::Tensor& squares) const override;
  int64_t lamb(const LambRule& rule, const at::Tensor& updates, const Tensors& tensors,
               const Settings& settings) const override;
  Measured measure(const std::vector<at::Tensor>& gradients, const at::Tensor& like) const override;

 private:
  const UpdateLaunches& launches_;
  at::DeviceType device_;
};

}  // namespace trainopt::kernels::update
