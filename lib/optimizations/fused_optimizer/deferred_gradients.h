// Gradients whose scaling is deferred to the update. If norm or finiteness are requested, one pass measures all
// gradients. Scale factors are only noted; the update applies them as it reads the gradients.
#pragma once

#include "kernels/update/update.h"
#include "train/optimizer/gradients.h"

#include <optional>

namespace trainopt::fused_optimizer {

using kernels::update::Measured;
using kernels::update::UpdateKernels;

/// The Gradients that the fused update reads.
class DeferredGradients : public Gradients {
 public:
  /// `kernels` must outlive it; `like`: a tensor on the gradients' device.
  DeferredGradients(const UpdateKernels& kernels, at::Tensor like) : kernels_(kernels), like_(std::move(like)) {}

  at::Tensor value(const at::Tensor& gradient) const override;
  Pending pending() const override { return pending_; }
  void check_finite(at::Tensor& not_finite) override;
  void unscale(const at::Tensor& factor, at::Tensor& not_finite) override;
  void scale(const at::Tensor& factor) override;
  /// In a pass of its own, with the factors so far.
  void clamp(double bound) override;

 private:
  /// [1]
  at::Tensor norms() override;
  void reset() override;
  const Measured& measured(const std::vector<at::Tensor>& gradients);
  void multiply(const at::Tensor& factor);

  const UpdateKernels& kernels_;
  at::Tensor like_;
  std::optional<Measured> measured_;  ///< of this step's gradients as stored, before pending factors
  Pending pending_;
};

}  // namespace trainopt::fused_optimizer
