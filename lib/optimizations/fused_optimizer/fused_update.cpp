#include "optimizations/fused_optimizer/fused_update.h"

#include "device/tensor.h"
#include "optimizations/fused_optimizer/fused_optimizer.h"

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

namespace {

using kernels::update::AdamRule;
using kernels::update::LambRule;
using kernels::update::LionRule;
using kernels::update::SgdRule;

class FusedSgd : public FusedOptimizer {
 public:
  FusedSgd(const UpdateKernels& kernels, const SgdConfig& config, const BuildContext& context)
      : FusedOptimizer(kernels, context),
        rule_{.momentum = static_cast<float>(config.momentum), .nesterov = config.nesterov},
        momentum_(config.momentum, store_) {}

  void set_momentum(double momentum) override { rule_.momentum = static_cast<float>(momentum); }
  void save(ArchiveWriter& archive) const override { momentum_.save(archive); }

 private:
  void load_state(const ArchiveReader& archive) override { momentum_.load(archive); }
  int64_t bytes_of_state() const override { return momentum_.bytes(); }
  int64_t launch(Batch& batch) override {
    if (momentum_.velocity) batch.tensors.first = chosen(momentum_.velocity->tensors(), batch);
    SgdRule rule = rule_;
    rule.weight_decay = batch.weight_decay;
    return kernels_.sgd(rule, batch.tensors, batch.settings);
  }

  SgdRule rule_;
  Momentum momentum_;
};

class FusedAdam : public FusedOptimizer {
 public:
  FusedAdam(const UpdateKernels& kernels, const AdamConfig& config, bool decoupled, const BuildContext& context)
      : FusedOptimizer(kernels, context),
        rule_{.beta1 = config.betas[0],
              .beta2 = config.betas[1],
              .epsilon = static_cast<float>(config.eps),
              .decoupled = decoupled},
        moments_(store_) {}

  void set_momentum(double momentum) override { rule_.beta1 = momentum; }
  void save(ArchiveWriter& archive) const override { moments_.save(archive); }

 private:
  void load_state(const ArchiveReader& archive) override { moments_.load(archive); }
  int64_t bytes_of_state() const override { return moments_.bytes(); }
  int64_t launch(Batch& batch) override {
    batch.tensors.first = chosen(moments_.first.tensors(), batch);
    batch.tensors.second = chosen(moments_.second.tensors(), batch);
    AdamRule rule = rule_;
    rule.weight_decay = batch.weight_decay;
    rule.counts_update = batch.is_first;
    return kernels_.adam(rule, moments_.updates, batch.tensors, batch.settings);
  }

  AdamRule rule_;
  Moments moments_;
};

class FusedLion : public FusedOptimizer {
 public:
  FusedLion(const UpdateKernels& kernels, const LionConfig& config, const BuildContext& context)
      : FusedOptimizer(kernels, context),
        rule_{.beta1 = config.betas[0], .beta2 = config.betas[1]},
        average_("exp_avg", store_) {}

  void set_momentum(double momentum) override { rule_.beta1 = momentum; }
  void save(ArchiveWriter& archive) const override { average_.save(archive); }

 private:
  void load_state(const ArchiveReader& archive) override { average_.load(archive); }
  int64_t bytes_of_state() const override { return average_.bytes(); }
  int64_t launch(Batch& batch) override {
    batch.tensors.first = chosen(average_.tensors(), batch);
    LionRule rule = rule_;
    rule.weight_decay = batch.weight_decay;
    return kernels_.lion(rule, batch.tensors, batch.settings);
  }

  LionRule rule_;
  ParameterState average_;
};

/// Takes the norms of all parameters, whole even if this rank has only parts, before the first is updated.
class LayerwiseOptimizer : public FusedOptimizer {
 public:
  LayerwiseOptimizer(const UpdateKernels& kernels, bool always_adapt, const BuildContext& context)
      : FusedOptimizer(kernels, context) {
    const auto count = static_cast<int64_t>(settings().size());
    const at::TensorOptions options = learning_rates().options();
    squares_ = at::zeros({count, 2}, options.dtype(at::kDouble));
    std::vector<double> decays, adapts;
    for (const ParameterSettings& own : settings()) {
      decays.push_back(own.weight_decay);
      adapts.push_back(always_adapt || own.weight_decay != 0);
    }
    decays_ = at::tensor(decays, at::kDouble).to(options.device());
    adapts_ = at::tensor(adapts, at::kDouble).to(options.device());
  }

 protected:
  const at::Tensor& decays() const { return decays_; }

 private:
  int64_t prepare(std::vector<Batch>& batches) final {
    int64_t launches = 0;
    for (Batch& batch : batches) {
      batch.tensors.rows.assign(batch.indices.begin(), batch.indices.end());
      launches += measure(batch, squares_);
    }
    const at::Tensor norms = store_.sums_of_parts(squares_).sqrt().t(), ones = at::ones_like(decays_);
    const at::Tensor positive = at::minimum(norms[0], norms[1]) > 0;
    const at::Tensor adapted = finished(at::where(positive, ratio(norms[0], norms[1]), ones));
    const at::Tensor ratios = at::where(adapts_ > 0, adapted, ones).to(at::kFloat);
    for (Batch& batch : batches) batch.settings.ratios = ratios;
    return launches;
  }
  /// Writes the sums of squares of the parameter and of what the rule measures; returns the number of launches.
  virtual int64_t measure(Batch& batch, const at::Tensor& squares) = 0;
  // All are [parameters] float64:
  virtual at::Tensor ratio(const at::Tensor& parameter_norms, const at::Tensor& measured_norms) const = 0;
  /// The ratio as it multiplies the learning rate.
  virtual at::Tensor finished(const at::Tensor& ratio) const = 0;

  at::Tensor squares_;          ///< [parameters, 2] float64: of those without a gradient anything
  at::Tensor decays_, adapts_;  ///< [parameters] float64: weight decay; 1 where the rate adapts
};

/// SGD whose rates adapt to the norms of parameter and gradient.
class FusedLars : public LayerwiseOptimizer {
 public:
  FusedLars(const UpdateKernels& kernels, const LarsConfig& config, const BuildContext& context)
      : LayerwiseOptimizer(kernels, config.always_adapt, context),
        config_(config),
        momentum_(config.momentum, store_) {}

  void set_momentum(double momentum) override { config_.momentum = momentum; }
  void save(ArchiveWriter& archive) const override { momentum_.save(archive); }

 private:
  void load_state(const ArchiveReader& archive) override { momentum_.load(archive); }
  int64_t bytes_of_state() const override { return momentum_.bytes(); }
  int64_t measure(Batch& batch, const at::Tensor& squares) override {
    return kernels_.norms(batch.tensors, batch.settings, squares);
  }
  at::Tensor ratio(const at::Tensor& parameter_norms, const at::Tensor& gradient_norms) const override {
    return config_.trust_coeff * parameter_norms / (gradient_norms + parameter_norms * decays() + config_.eps);
  }
  at::Tensor finished(const at::Tensor& ratio) const override {
    return config_.trust_clip ? (ratio / learning_rates()).clamp_max(1) : ratio;
  }
  int64_t launch(Batch& batch) override {
    if (momentum_.velocity) batch.tensors.first = chosen(momentum_.velocity->tensors(), batch);
    return kernels_.sgd({.momentum = static_cast<float>(config_.momentum),
                         .weight_decay = batch.weight_decay,
                         .nesterov = config_.nesterov},
                        batch.tensors, batch.settings);
  }

  LarsConfig config_;
  Momentum momentum_;
};

class FusedLamb : public LayerwiseOptimizer {
 public:
  FusedLamb(const UpdateKernels& kernels, const LambConfig& config, const BuildContext& context)
      : LayerwiseOptimizer(kernels, config.always_adapt, context),
        rule_{.beta1 = config.betas[0],
              .beta2 = config.betas[1],
              .epsilon = static_cast<float>(config.eps),
              .bias_correction = config.bias_correction},
        clips_(config.trust_clip),
        moments_(store_) {}

  void set_momentum(double momentum) override { rule_.beta1 = momentum; }
  void save(ArchiveWriter& archive) const override { moments_.save(archive); }

 private:
  void load_state(const ArchiveReader& archive) override { moments_.load(archive); }
  int64_t bytes_of_state() const override { return moments_.bytes(); }
  int64_t measure(Batch& batch, const at::Tensor& squares) override {
    batch.tensors.first = chosen(moments_.first.tensors(), batch);
    batch.tensors.second = chosen(moments_.second.tensors(), batch);
    return kernels_.lamb_moments(rule_of(batch), moments_.updates, batch.tensors, batch.settings, squares);
  }
  at::Tensor ratio(const at::Tensor& parameter_norms, const at::Tensor& update_norms) const override {
    return parameter_norms / update_norms;
  }
  at::Tensor finished(const at::Tensor& ratio) const override { return clips_ ? ratio.clamp_max(1) : ratio; }
  int64_t launch(Batch& batch) override {
    return kernels_.lamb(rule_of(batch), moments_.updates, batch.tensors, batch.settings);
  }
  LambRule rule_of(const Batch& batch) const {
    LambRule rule = rule_;
    rule.weight_decay = batch.weight_decay;
    rule.counts_update = batch.is_first;
    return rule;
  }

  LambRule rule_;
  bool clips_;
  Moments moments_;
};

/// Null for rules without kernels.
struct Make {
  using Made = std::unique_ptr<Optimizer>;
  Made operator()(const SgdConfig& c) const { return std::make_unique<FusedSgd>(kernels, c, context); }
  Made operator()(const AdamConfig& c) const { return std::make_unique<FusedAdam>(kernels, c, false, context); }
  Made operator()(const AdamWConfig& c) const { return std::make_unique<FusedAdam>(kernels, c, true, context); }
  Made operator()(const LionConfig& c) const { return std::make_unique<FusedLion>(kernels, c, context); }
  Made operator()(const LarsConfig& c) const { return std::make_unique<FusedLars>(kernels, c, context); }
  Made operator()(const LambConfig& c) const { return std::make_unique<FusedLamb>(kernels, c, context); }

  const UpdateKernels& kernels;
  const BuildContext& context;
};

}  // namespace

void Momentum::save(ArchiveWriter& archive) const {
  if (velocity) velocity->save(archive);
}

void Momentum::load(const ArchiveReader& archive) {
  if (velocity) velocity->load(archive);
}

Moments::Moments(const ParameterStore& store)
    : first("exp_avg", store),
      second("exp_avg_sq", store),
      updates(at::zeros({}, store.parameters().front().second.options().dtype(at::kDouble).requires_grad(false))) {}

void Moments::save(ArchiveWriter& archive) const {
  archive.tensor("optimizer.updates", updates);
  first.save(archive);
  second.save(archive);
}

void Moments::load(const ArchiveReader& archive) {
  archive.tensor("optimizer.updates", updates);
  first.load(archive);
  second.load(archive);
}

bool has_fused_rule(const OptimizerConfig& config) {
  return std::visit([]<class Config>(const Config&) { return std::is_invocable_v<Make, const Config&>; }, config);
}

std::unique_ptr<Optimizer> make_fused_rule(const UpdateKernels& kernels, const BuildContext& context) {
  return std::visit(
      [&]<class Config>(const Config& config) -> std::unique_ptr<Optimizer> {
        if constexpr (std::is_invocable_v<Make, const Config&>) return Make{kernels, context}(config);
        throw BrokenInvariant("an optimizer without kernels");
      },
      context.plan.optimizer_config);
}

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
