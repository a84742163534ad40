// Passes over gradients that wait for the update: one look at all of them, where something asks for it, and a factor
// that the update multiplies them by as it reads them.
#pragma once

#include "kernels/update/update.h"
#include "train/gradient_passes.h"

#include <optional>

namespace trainopt::fused_optimizer {

using kernels::update::Measured;
using kernels::update::UpdateKernels;

class DeferredPasses : public GradientPasses {
 public:
  /// `kernels` must outlive it; `like`: a tensor on the gradients' device.
  DeferredPasses(const UpdateKernels& kernels, at::Tensor like) : kernels_(kernels), like_(std::move(like)) {}

  void begin() override;
  void look(const std::vector<at::Tensor>& gradients, at::Tensor& not_finite) override;
  void scale(const std::vector<at::Tensor>& gradients, const at::Tensor& factor, at::Tensor& not_finite) override;
  /// [1]
  at::Tensor norms(const std::vector<at::Tensor>& gradients) override;
  void shorten(const std::vector<at::Tensor>& gradients, const at::Tensor& factor) override;
  at::Tensor values(const at::Tensor& gradient) const override;
  void clear(const std::vector<at::Tensor>& gradients) override;

  struct Pending {
    at::Tensor factor;  ///< a 0-dim float; undefined: 1
    bool scaled = false, clipped = false;
  };
  /// For the update, which ends with it: what is called then is of the next step. `clears`: the update writes the zeros
  /// of the next clear().
  Pending take(bool clears);

 private:
  const Measured& measured(const std::vector<at::Tensor>& gradients);
  void multiply(const at::Tensor& factor);

  const UpdateKernels& kernels_;
  at::Tensor like_;
  std::optional<Measured> measured_;  ///< of this step's gradients as they are in memory
  Pending pending_;
  bool cleared_ = false;
};

}  // namespace trainopt::fused_optimizer
