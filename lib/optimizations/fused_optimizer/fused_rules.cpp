#include "optimizations/fused_optimizer/fused_rules.h"

#include "device/tensor.h"

namespace trainopt::fused_optimizer {
namespace {

using kernels::update::AdamRule;
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

/// Null for rules without kernels.
struct Make {
  using Made = std::unique_ptr<Optimizer>;
  Made operator()(const SgdConfig& c) const { return std::make_unique<FusedSgd>(kernels, c, context); }
  Made operator()(const AdamConfig& c) const { return std::make_unique<FusedAdam>(kernels, c, false, context); }
  Made operator()(const AdamWConfig& c) const { return std::make_unique<FusedAdam>(kernels, c, true, context); }
  Made operator()(const LionConfig& c) const { return std::make_unique<FusedLion>(kernels, c, context); }
  Made operator()(const LarsConfig& c) const { return make_fused_lars(kernels, c, context); }
  Made operator()(const LambConfig& c) const { return make_fused_lamb(kernels, c, context); }

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

}  // namespace trainopt::fused_optimizer
