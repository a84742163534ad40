#include "train/parameter_store.h"

#include "model/model.h"

#include <ATen/ATen.h>

namespace trainopt {

void ParameterStore::save(ArchiveWriter& archive, const std::string& prefix,
                          const std::vector<at::Tensor>& tensors) const {
  for (size_t i = 0; i < tensors.size(); ++i) archive.tensor(prefix + parameters()[i].first, tensors[i]);
}

void ParameterStore::load(const ArchiveReader& archive, const std::string& prefix,
                          std::vector<at::Tensor>& tensors) const {
  for (size_t i = 0; i < tensors.size(); ++i) archive.tensor(prefix + parameters()[i].first, tensors[i]);
}

std::vector<at::Tensor> ParameterStore::present_gradients() const {
  std::vector<at::Tensor> present;
  for (auto& gradient : gradients())
    if (gradient.defined()) present.push_back(std::move(gradient));
  return present;
}

std::shared_ptr<GradientPasses> ParameterStore::passes() const {
  static const auto plain = std::make_shared<GradientPasses>();
  auto given = passes_.lock();
  return given ? std::move(given) : plain;
}

NamedTensors ParameterStore::whole(const Model& model) const { return model.state(); }

int64_t ParameterStore::parameter_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, parameter] : parameters()) bytes += static_cast<int64_t>(parameter.nbytes());
  return bytes;
}

int64_t ParameterStore::gradient_bytes() const {
  int64_t bytes = 0;
  for (const auto& gradient : present_gradients()) bytes += static_cast<int64_t>(gradient.nbytes());
  return bytes;
}

LocalParameters::LocalParameters(const Model& model, ClearGradients clear)
    : parameters_(model.parameters()), clear_(clear) {}

std::vector<at::Tensor> LocalParameters::gradients() const {
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters_.size());
  for (const auto& [name, parameter] : parameters_) gradients.push_back(parameter.grad());
  return gradients;
}

at::Tensor LocalParameters::clip(std::optional<double> max_norm) {
  if (!max_norm) return {};
  const at::NoGradGuard no_grad;
  const auto present = present_gradients();
  const at::Tensor norm = at::linalg_vector_norm(passes()->norms(present));
  passes()->shorten(present, (*max_norm / (norm + 1e-6)).clamp_max(1.0));
  return norm;
}

void LocalParameters::clear_gradients() {
  if (clears_with_zeros()) return passes()->clear(present_gradients());
  for (const auto& [name, parameter] : parameters_) parameter.mutable_grad().reset();
}

}  // namespace trainopt
