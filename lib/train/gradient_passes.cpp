#include "train/gradient_passes.h"

#include <ATen/ATen.h>

namespace trainopt {

void GradientPasses::look(const std::vector<at::Tensor>& gradients, at::Tensor& not_finite) {
  scale(gradients, at::ones_like(not_finite), not_finite);
}

void GradientPasses::scale(const std::vector<at::Tensor>& gradients, const at::Tensor& factor, at::Tensor& not_finite) {
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, not_finite, factor);
}

at::Tensor GradientPasses::norms(const std::vector<at::Tensor>& gradients) {
  return at::stack(at::_foreach_norm(gradients, 2));
}

void GradientPasses::shorten(const std::vector<at::Tensor>& gradients, const at::Tensor& factor) {
  at::_foreach_mul_(gradients, factor);
}

void GradientPasses::clear(const std::vector<at::Tensor>& gradients) {
  for (const auto& gradient : gradients) gradient.zero_();
}

}  // namespace trainopt
