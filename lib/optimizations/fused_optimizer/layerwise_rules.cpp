#include "optimizations/fused_optimizer/fused_rules.h"

#include "device/tensor.h"

namespace trainopt::fused_optimizer {
namespace {

using kernels::update::LambRule;
using kernels::update::SgdRule;

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

}  // namespace

std::unique_ptr<Optimizer> make_fused_lars(const UpdateKernels& kernels, const LarsConfig& config,
                                           const BuildContext& context) {
  return std::make_unique<FusedLars>(kernels, config, context);
}

std::unique_ptr<Optimizer> make_fused_lamb(const UpdateKernels& kernels, const LambConfig& config,
                                           const BuildContext& context) {
  return std::make_unique<FusedLamb>(kernels, config, context);
}

}  // namespace trainopt::fused_optimizer
