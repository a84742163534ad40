// 16-bit copies of the weights, for layers that autocast would otherwise give a cast in every forward pass.
#pragma once

#include "model/model.h"
#include "train/parameter_store.h"
#include "train/plan.h"

#include <algorithm>

namespace trainopt::fused_optimizer {

/// 16-bit copies of parameters, which the model's layers use during this object's lifetime.
class WeightCopies {
 public:
  explicit WeightCopies(const BuildContext& context) : parameters_(context.parameters->parameters()) {
    const at::ScalarType type = context.plan.tensor_format.compute_type;
    if (type == at::kFloat || context.model == nullptr || !context.parameters->is_local()) return;
    layer_copies_ = context.model->weight_copies();
    for (size_t i = 0; i < layer_copies_.size(); ++i) {
      copies_.push_back(layer_copies_[i] ? at::empty_like(parameters_[i].second.detach(), type) : at::Tensor());
      if (layer_copies_[i]) *layer_copies_[i] = copies_[i];
    }
    refresh();
  }
  ~WeightCopies() {
    for (size_t i = 0; i < layer_copies_.size(); ++i)
      if (layer_copies_[i] && layer_copies_[i]->is_same(copies_[i])) layer_copies_[i]->reset();
  }
  WeightCopies(const WeightCopies&) = delete;
  WeightCopies& operator=(const WeightCopies&) = delete;

  /// Call after something else has written to the parameters.
  void refresh() {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < copies_.size(); ++i)
      if (copies_[i].defined()) copies_[i].copy_(parameters_[i].second);
  }
  /// One per parameter, undefined for those without a copy; empty if there are no copies.
  const std::vector<at::Tensor>& tensors() const { return copies_; }
  int64_t count() const {
    return std::count_if(copies_.begin(), copies_.end(), [](const at::Tensor& copy) { return copy.defined(); });
  }
  int64_t bytes() const {
    int64_t bytes = 0;
    for (const auto& copy : copies_)
      if (copy.defined()) bytes += static_cast<int64_t>(copy.nbytes());
    return bytes;
  }

 private:
  const NamedTensors& parameters_;
  std::vector<WeightCopy> layer_copies_;
  std::vector<at::Tensor> copies_;
};

}  // namespace trainopt::fused_optimizer
