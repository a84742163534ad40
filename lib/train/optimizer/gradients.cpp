#include "train/optimizer/gradients.h"

#include "comm/communicator.h"
#include "device/tensor.h"
#include "train/parameter_store.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/core/grad_mode.h>

namespace trainopt {

void Gradients::begin(ParameterStore& store, GradientMemory memory) {
  reset();
  store_ = &store;
  memory_ = std::move(memory);
  cleared_ = false;
  defined_.clear();
  for (const auto& gradient : memory_.tensors)
    if (gradient.defined()) defined_.push_back(gradient);
}

const NamedTensors& Gradients::parameters() const { return store_->parameters(); }

void Gradients::check_finite(at::Tensor& not_finite) { unscale(at::ones_like(not_finite), not_finite); }

void Gradients::unscale(const at::Tensor& factor, at::Tensor& not_finite) {
  at::_amp_foreach_non_finite_check_and_unscale_(defined(), not_finite, factor);
}

void Gradients::scale(const at::Tensor& factor) { at::_foreach_mul_(memory(), factor); }

void Gradients::clamp(double bound) {
  for (const at::Tensor& part : memory()) part.clamp_(-bound, bound);
}

at::Tensor Gradients::norms() { return at::stack(at::_foreach_norm(memory(), 2, at::kFloat)); }

at::Tensor Gradients::norm() {
  const at::Tensor of_groups = norms();
  if (memory_.shards.empty() && memory_.stages == nullptr) return at::linalg_vector_norm(of_groups);
  at::Tensor square = of_groups.square().sum();
  for (const size_t tensor : memory_.counted_elsewhere)
    square -= at::linalg_vector_norm(value(memory_.tensors[tensor])).square();
  if (!memory_.shards.empty()) memory_.communicator->all_reduce(square)->wait();
  if (memory_.stages != nullptr) memory_.stages->all_reduce(square)->wait();
  return square.sqrt();
}

void Gradients::agree(at::Tensor& flag) const {
  for (Communicator* group : {memory_.communicator, memory_.stages})
    if (group != nullptr) group->all_reduce(flag)->wait();
  flag.clamp_max_(1);
}

void Gradients::clear() {
  if (!cleared_) store_->clear_gradients();
  reset();
  memory_ = {};
  defined_.clear();
}

at::Tensor clip(Gradients& gradients, std::optional<double> max_norm, std::optional<double> max_value) {
  const at::NoGradGuard no_grad;
  if (max_value) gradients.clamp(*max_value);
  if (!max_norm) return {};
  const at::Tensor norm = gradients.norm();
  gradients.scale((*max_norm / (norm + 1e-6)).clamp_max(1.0));
  return norm;
}

}  // namespace trainopt
