#include "optimizations/fused_optimizer/deferred_passes.h"

#include "optimizations/fused_optimizer/receipt.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>

namespace trainopt::fused_optimizer {

const Measured& DeferredPasses::measured(const std::vector<at::Tensor>& gradients) {
  if (!measured_) {
    RECORD_FUNCTION(kMeasureLabel, std::vector<c10::IValue>());
    measured_ = kernels_.measure(gradients, like_);
  }
  return *measured_;
}

void DeferredPasses::begin() {
  measured_.reset();
  pending_ = {};
  cleared_ = false;
}

void DeferredPasses::multiply(const at::Tensor& factor) {
  pending_.factor = pending_.factor.defined() ? pending_.factor * factor : factor;
}

void DeferredPasses::look(const std::vector<at::Tensor>& gradients, at::Tensor& not_finite) {
  not_finite.copy_(at::maximum(not_finite, measured(gradients).not_finite));
}

void DeferredPasses::scale(const std::vector<at::Tensor>& gradients, const at::Tensor& factor, at::Tensor& not_finite) {
  look(gradients, not_finite);
  multiply(factor);
  pending_.scaled = true;
}

at::Tensor DeferredPasses::norms(const std::vector<at::Tensor>& gradients) {
  const at::Tensor norm = measured(gradients).square_sum.sqrt();
  return (pending_.factor.defined() ? norm * pending_.factor.to(at::kDouble) : norm).to(at::kFloat).reshape({1});
}

void DeferredPasses::shorten(const std::vector<at::Tensor>&, const at::Tensor& factor) {
  multiply(factor);
  pending_.clipped = true;
}

at::Tensor DeferredPasses::values(const at::Tensor& gradient) const {
  return pending_.factor.defined() ? gradient * pending_.factor : gradient;
}

void DeferredPasses::clear(const std::vector<at::Tensor>& gradients) {
  if (!std::exchange(cleared_, false)) GradientPasses::clear(gradients);
}

DeferredPasses::Pending DeferredPasses::take(bool clears) {
  measured_.reset();
  cleared_ = clears;
  return std::exchange(pending_, {});
}

}  // namespace trainopt::fused_optimizer
