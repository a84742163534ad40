#include "optimizations/fused_optimizer/fused_update.h"

#include "device/tensor.h"
#include "optimizations/fused_optimizer/deferred_gradients.h"
#include "optimizations/fused_optimizer/receipt.h"

#include <ATen/record_function.h>

#include <map>

namespace trainopt::fused_optimizer {
namespace {

at::Tensor numbers_on(const at::TensorOptions& options, const std::vector<double>& numbers) {
  return at::tensor(numbers, at::kFloat).to(options);
}

}  // namespace

FusedOptimizer::FusedOptimizer(const UpdateKernels& kernels, const BuildContext& context)
    : kernels_(kernels),
      store_(*context.parameters),
      copies_(context),
      settings_(settings_by_parameter(context.plan.optimizer_config, store_, context.plan.parameter_settings)) {
  const at::TensorOptions options = store_.parameters().front().second.options().dtype(at::kFloat).requires_grad(false);
  std::map<std::pair<double, float>, std::vector<size_t>> members;
  std::vector<double> rates, group_rates;
  for (size_t i = 0; i < settings_.size(); ++i) {
    members[{settings_[i].rate, static_cast<float>(settings_[i].weight_decay)}].push_back(i);
    rates.push_back(settings_[i].rate);
  }
  learning_rate_ = at::empty({}, options);
  learning_rates_ = at::empty({static_cast<int64_t>(members.size())}, options);
  for (auto& [key, indices] : members) {
    groups_.push_back({learning_rates_[static_cast<int64_t>(groups_.size())], key.second, std::move(indices)});
    group_rates.push_back(key.first);
  }
  rates_ = numbers_on(options, rates);
  group_rates_ = numbers_on(options, group_rates);
  set_learning_rate(base_learning_rate(context.plan.optimizer_config));
}

std::unique_ptr<Gradients> FusedOptimizer::make_gradients() const {
  return std::make_unique<DeferredGradients>(kernels_, learning_rate_);
}

void FusedOptimizer::load(const ArchiveReader& archive) {
  load_state(archive);
  copies_.refresh();  // parameters are loaded first
}

/// Stored as float32, which all kernels expect.
void FusedOptimizer::set_learning_rate(double learning_rate) {
  if (std::exchange(host_rate_, learning_rate) == learning_rate) return;
  learning_rate_.fill_(learning_rate);
  at::mul_out(learning_rates_, group_rates_, learning_rate_);
}

std::vector<Batch> FusedOptimizer::batches(const Gradients& gradients, const Settings& settings) const {
  std::vector<Batch> all;
  for (const Group& group : groups_) {
    Batch batch{.settings = settings, .weight_decay = group.weight_decay, .is_first = all.empty()};
    batch.settings.learning_rate = group.learning_rate;
    for (const size_t i : group.members) {
      if (!gradients.tensors()[i].defined()) continue;
      batch.indices.push_back(i);
      batch.tensors.parameters.push_back(gradients.parameters()[i].second);
      batch.tensors.gradients.push_back(gradients.tensors()[i]);
    }
    if (batch.indices.empty()) continue;
    if (!copies_.tensors().empty()) batch.tensors.copies = chosen(copies_.tensors(), batch);
    all.push_back(std::move(batch));
  }
  return all;
}

void FusedOptimizer::update(Gradients& gradients, const at::Tensor& skip_update) {
  const at::NoGradGuard no_grad;
  RECORD_FUNCTION("trainopt::fused_optimizer",
                  std::vector<c10::IValue>());  // libtorch operations inside count as part of it
  const bool clears = gradients.clears_with_zeros();
  const auto pending = gradients.pending();
  std::vector<Batch> all =
      batches(gradients, {.learning_rate = {}, .factor = pending.factor, .skip_update = skip_update, .clears = clears});
  int64_t launches = prepare(all), updated = 0;
  for (Batch& batch : all) {
    launches += launch(batch);
    updated += static_cast<int64_t>(batch.indices.size());
  }
  if (clears) gradients.mark_cleared();
  post({.tensors = updated,
        .launches = launches,
        .copies = copies_.count(),
        .scaled = pending.scaled,
        .clipped = pending.clipped,
        .cleared = clears});
}

std::vector<at::Tensor> FusedOptimizer::chosen(const std::vector<at::Tensor>& all, const Batch& batch) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(batch.indices.size());
  for (const size_t index : batch.indices) tensors.push_back(all[index]);
  return tensors;
}

}  // namespace trainopt::fused_optimizer
