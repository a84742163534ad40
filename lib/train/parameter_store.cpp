#include "train/parameter_store.h"

#include "device/tensor.h"
#include "model/model.h"
#include "train/plan.h"

namespace trainopt {

void ParameterStore::save(ArchiveWriter& archive, const std::string& prefix, const std::vector<at::Tensor>& tensors,
                          const NameFilter& wanted) const {
  for (size_t i = 0; i < tensors.size(); ++i)
    if (const std::string& name = parameters()[i].first; wanted(name)) archive.tensor(prefix + name, tensors[i]);
}

void ParameterStore::load(const ArchiveReader& archive, const std::string& prefix, std::vector<at::Tensor>& tensors,
                          const NameFilter& wanted) const {
  for (size_t i = 0; i < tensors.size(); ++i)
    if (const std::string& name = parameters()[i].first; wanted(name)) archive.tensor(prefix + name, tensors[i]);
}

void ParameterStore::change_whole(const WholeChange& change) const {
  for (size_t i = 0; i < parameters().size(); ++i) {
    if (!change.wanted(parameters()[i].first)) continue;
    if (const at::Tensor whole = change.part(i); whole.defined()) change.use(i, change.change(whole));
  }
}

Gradients& ParameterStore::finish_gradients() {
  GradientMemory memory = complete_gradients();
  when_complete_(memory);
  finished_->begin(*this, std::move(memory));
  return *finished_;
}

NamedTensors ParameterStore::complete(const std::vector<at::Tensor>& tensors) const {
  NamedTensors all;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].defined()) all.emplace_back(parameters()[i].first, tensors[i]);
  return all;
}

int64_t ParameterStore::parameter_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, parameter] : parameters()) bytes += static_cast<int64_t>(parameter.nbytes());
  return bytes;
}

int64_t ParameterStore::gradient_bytes() const {
  int64_t bytes = 0;
  for (const auto& gradient : gradients())
    if (gradient.defined()) bytes += static_cast<int64_t>(gradient.nbytes());
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

GradientMemory LocalParameters::complete_gradients() {
  return {.tensors = gradients(), .clears_with_zeros = clear_ == ClearGradients::zero};
}

void LocalParameters::clear_gradients() {
  for (const auto& [name, parameter] : parameters_) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (clear_ == ClearGradients::drop)
      gradient.reset();
    else if (gradient.defined())
      gradient.zero_();
  }
}

std::optional<c10::ScalarType> wire_type(const ParallelConfig& config) {
  if (!config.gradient_dtype || *config.gradient_dtype == WireType::float32)
    return std::nullopt;  // gradients are float32 already
  return c10::kBFloat16;
}

ShardedModel sharded_model(const Plan& plan, const ParallelConfig& config, const RankPosition& position) {
  return {.parameters = plan.stages.parameters,
          .bfloat16_parameters = plan.model.bfloat16_parameters,
          .states = plan.optimizer_states,
          .ranks = position.ranks,
          .local_ranks = position.local_ranks,
          .micro_batches = plan.data.accumulation,
          .wire_bytes_each = wire_type(config) ? 2 : 4,
          .late_updates = config.async_updates.staleness > 0};
}

}  // namespace trainopt
