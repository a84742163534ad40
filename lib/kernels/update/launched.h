// UpdateKernels out of launches over bare memory: checks what it is given, makes room for results, and queues on the
// device's current stream.
#pragma once

#include "kernels/update/launch.h"
#include "kernels/update/update.h"

namespace trainopt::kernels::update {

/// Tensors are on devices of type `device`, all of one call on one of them. `launches` must outlive it.
class LaunchedUpdateKernels : public UpdateKernels {
 public:
  LaunchedUpdateKernels(const UpdateLaunches& launches, at::DeviceType device) : launches_(launches), device_(device) {}

  int64_t sgd(const SgdRule& rule, const Tensors& tensors, const Settings& settings) const override;
  int64_t adam(const AdamRule& rule, const at::Tensor& updates, const Tensors& tensors,
               const Settings& settings) const override;
  Measured measure(const std::vector<at::Tensor>& gradients, const at::Tensor& like) const override;

 private:
  const UpdateLaunches& launches_;
  at::DeviceType device_;
};

}  // namespace trainopt::kernels::update
