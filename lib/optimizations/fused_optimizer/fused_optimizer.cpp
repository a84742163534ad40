#include "optimizations/fused_optimizer/fused_optimizer.h"

#include "base/counted.h"
#include "train/parameter_store.h"
#include "train/plan.h"

#include <ATen/ATen.h>

namespace trainopt::fused_optimizer {
namespace {

/// Parameters that have a gradient, and where they stand in the store's order.
struct Present {
  explicit Present(const ParameterStore& store) {
    const auto all = store.gradients();
    for (size_t i = 0; i < all.size(); ++i) {
      if (!all[i].defined()) continue;
      parameters.push_back(store.parameters()[i].second);
      gradients.push_back(all[i]);
      places.push_back(i);
    }
  }
  std::vector<at::Tensor> of(const ParameterState& state) const { return of(state.tensors()); }
  std::vector<at::Tensor> of(const std::vector<at::Tensor>& state) const {
    std::vector<at::Tensor> chosen;
    chosen.reserve(places.size());
    for (const size_t place : places) chosen.push_back(state[place]);
    return chosen;
  }
  std::vector<at::Tensor> parameters, gradients;
  std::vector<size_t> places;
};

std::optional<at::Tensor> given(const at::Tensor& overflow) {
  return overflow.defined() ? std::optional<at::Tensor>(overflow) : std::nullopt;
}

class FusedSgd : public Optimizer {
 public:
  FusedSgd(const SgdConfig& config, const ParameterStore& store)
      : config_(config), learning_rate_(config.lr), momentum_(momentum_of(config, store)) {}

  void set_learning_rate(double learning_rate) override { learning_rate_ = learning_rate; }

  void update(ParameterStore& store, const at::Tensor& overflow) override {
    const at::NoGradGuard no_grad;
    const Present present(store);
    // Never "first step": momentum starts as zeros, which gives the same numbers and survives an overflow in step 1.
    at::_fused_sgd_(present.parameters, present.gradients, momentum_ ? present.of(*momentum_) : std::vector<at::Tensor>(),
                    config_.weight_decay, config_.momentum, learning_rate_, /*dampening=*/0.0, config_.nesterov,
                    /*maximize=*/false, /*is_first_step=*/false, /*grad_scale=*/std::nullopt, given(overflow));
  }

  void save(ArchiveWriter& archive) const override {
    if (momentum_) momentum_->save(archive);
  }
  void load(const ArchiveReader& archive) override {
    if (momentum_) momentum_->load(archive);
  }
  int64_t state_bytes() const override { return momentum_ ? momentum_->bytes() : 0; }

 private:
  SgdConfig config_;
  double learning_rate_;
  std::optional<ParameterState> momentum_;
};

class FusedAdam : public Optimizer {
 public:
  FusedAdam(const AdamConfig& config, bool decoupled, const ParameterStore& store)
      : config_(config), decoupled_(decoupled), learning_rate_(config.lr), first_("exp_avg", store), second_("exp_avg_sq", store) {
    for (const auto& [name, parameter] : store.parameters())
      updates_.push_back(at::zeros({}, parameter.options().dtype(at::kFloat).requires_grad(false)));
  }

  void set_learning_rate(double learning_rate) override { learning_rate_ = learning_rate; }

  void update(ParameterStore& store, const at::Tensor& overflow) override {
    const at::NoGradGuard no_grad;
    const Present present(store);
    const auto [beta1, beta2] = config_.betas;
    auto updates = present.of(updates_);
    at::_foreach_add_(updates, 1);
    const auto run = decoupled_ ? static_cast<Kernel*>(&at::_fused_adamw_) : static_cast<Kernel*>(&at::_fused_adam_);
    run(present.parameters, present.gradients, present.of(first_), present.of(second_), {}, updates, learning_rate_, beta1, beta2,
        config_.weight_decay, config_.eps, /*amsgrad=*/false, /*maximize=*/false, /*grad_scale=*/std::nullopt, given(overflow));
    if (overflow.defined()) at::_foreach_sub_(updates, std::vector<at::Tensor>(updates.size(), overflow));   // the step did not count
  }

  void save(ArchiveWriter& archive) const override {
    archive.tensor("optimizer.updates", updates_.front().to(at::kDouble));
    first_.save(archive);
    second_.save(archive);
  }
  void load(const ArchiveReader& archive) override {
    at::Tensor updates = updates_.front().to(at::kDouble);
    archive.tensor("optimizer.updates", updates);
    for (auto& count : updates_) count.copy_(updates);
    first_.load(archive);
    second_.load(archive);
  }
  int64_t state_bytes() const override { return first_.bytes() + second_.bytes(); }

 private:
  using Kernel = void(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList, double, double,
                      double, double, double, bool, bool, const std::optional<at::Tensor>&, const std::optional<at::Tensor>&);
  AdamConfig config_;
  bool decoupled_;
  double learning_rate_;
  ParameterState first_, second_;
  std::vector<at::Tensor> updates_;
};

std::unique_ptr<Optimizer> make(const OptimizerConfig& config, const ParameterStore& store) {
  if (const auto* sgd = std::get_if<SgdConfig>(&config)) return std::make_unique<FusedSgd>(*sgd, store);
  if (const auto* adam = std::get_if<AdamConfig>(&config)) return std::make_unique<FusedAdam>(*adam, false, store);
  return std::make_unique<FusedAdam>(std::get<AdamWConfig>(config), true, store);
}

}  // namespace

Outcome apply(Plan& plan) {
  plan.optimizer.fill("fused_optimizer", describe_optimizer(plan.optimizer_config) + ", one operation for all parameters",
                      [config = plan.optimizer_config](const BuildContext& context) { return make(config, *context.parameters); });
  return Outcome::applied("one operation for all parameters", [](const Observations& seen) {
    constexpr int64_t kMost = 3;   // Adam: count the update, update, take the count back if it overflowed
    const bool effective = seen.optimizer_operations > 0 && seen.optimizer_operations <= kMost;
    return Receipt{.observed = fmt::format("{} to update {}", counted(seen.optimizer_operations, "operation"), counted(seen.parameters, "parameter tensor")),
                   .effective = effective,
                   .reason = effective ? "" : "parameters were updated one after another"};
  });
}

}  // namespace trainopt::fused_optimizer
