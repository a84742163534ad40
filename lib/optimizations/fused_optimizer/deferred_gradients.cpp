#include "optimizations/fused_optimizer/deferred_gradients.h"

#include "device/tensor.h"
#include "optimizations/fused_optimizer/receipt.h"

#include <ATen/record_function.h>

namespace trainopt::fused_optimizer {

const Measured& DeferredGradients::measured(const std::vector<at::Tensor>& gradients) {
  if (!measured_) {
    RECORD_FUNCTION(kMeasureLabel, std::vector<c10::IValue>());
    measured_ = kernels_.measure(gradients, like_);
  }
  return *measured_;
}

void DeferredGradients::reset() {
  measured_.reset();
  pending_ = {};
}

void DeferredGradients::multiply(const at::Tensor& factor) {
  pending_.factor = pending_.factor.defined() ? pending_.factor * factor : factor;
}

void DeferredGradients::check_finite(at::Tensor& not_finite) {
  not_finite.copy_(at::maximum(not_finite, measured(defined()).not_finite));
}

void DeferredGradients::unscale(const at::Tensor& factor, at::Tensor& not_finite) {
  check_finite(not_finite);
  multiply(factor);
  pending_.scaled = true;
}

at::Tensor DeferredGradients::norms() {
  const at::Tensor norm = measured(memory()).square_sum.sqrt();
  return (pending_.factor.defined() ? norm * pending_.factor.to(at::kDouble) : norm).to(at::kFloat).reshape({1});
}

void DeferredGradients::scale(const at::Tensor& factor) {
  multiply(factor);
  pending_.clipped = true;
}

void DeferredGradients::clamp(double bound) {
  if (pending_.factor.defined()) at::_foreach_mul_(memory(), pending_.factor);
  pending_.factor = at::Tensor();
  measured_.reset();
  Gradients::clamp(bound);
}

at::Tensor DeferredGradients::value(const at::Tensor& gradient) const {
  return pending_.factor.defined() ? gradient * pending_.factor : gradient;
}

}  // namespace trainopt::fused_optimizer
