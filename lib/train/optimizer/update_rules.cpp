#include "train/optimizer/update_rules.h"

#include <ATen/ops/addmm.h>

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

/// Gradient + weight decay · parameter.
at::Tensor with_l2(const RuleInput& in) {
  return in.weight_decay != 0 ? in.gradient.add(in.values, in.weight_decay) : in.gradient;
}

/// velocity ← momentum · velocity + gradient; returns the direction. `velocity`: the last of the state.
at::Tensor with_momentum(const at::Tensor& gradient, double momentum, bool nesterov, const RuleInput& in) {
  if (momentum == 0) return gradient;
  const at::Tensor& velocity = in.state.back();
  commit(velocity, in.skip_update, [&](at::Tensor& v) { v.mul_(momentum).add_(gradient); });
  return nesterov ? gradient.add(velocity, momentum) : velocity;
}

void add_square(const at::Tensor& mean, const at::Tensor& gradient, double decay, const at::Tensor& skip_update) {
  commit(mean, skip_update, [&](at::Tensor& m) { m.mul_(decay).addcmul_(gradient, gradient, 1 - decay); });
}

/// What LARS and LAMB multiply by where both norms are above 0, otherwise 1.
at::Tensor where_positive(const at::Tensor& ratio, const RuleInput& in) {
  return at::where(at::minimum(in.parameter_norm, in.measured_norm) > 0, ratio, at::ones_like(ratio));
}

/// The number of updates. It is counted on the device, because only the device knows whether an update is skipped.
class UpdateCount {
 public:
  explicit UpdateCount(const at::Tensor& like) : updates_(shared_number(like, 0)) {}

  const at::Tensor& add(const at::Tensor& skip_update) {
    commit(updates_, skip_update, [](at::Tensor& updates) { updates.add_(1); });
    return updates_;
  }
  void save(ArchiveWriter& archive) const { archive.tensor("optimizer.updates", updates_); }
  void load(const ArchiveReader& archive) { archive.tensor("optimizer.updates", updates_); }

  static at::Tensor shared_number(const at::Tensor& like, double value) {
    return at::full({}, value, like.options().dtype(at::kDouble).requires_grad(false));
  }

 private:
  at::Tensor updates_;
};

/// torch.optim.SGD
class SgdRule : public UpdateRule {
 public:
  explicit SgdRule(const SgdConfig& config) : config_(config) {}
  std::vector<std::string> state() const override {
    return config_.momentum == 0 ? std::vector<std::string>{} : std::vector<std::string>{"momentum"};
  }
  at::Tensor direction(const RuleInput& in) const override {
    return with_momentum(with_l2(in), config_.momentum, config_.nesterov, in);
  }
  void set_momentum(double momentum) override { config_.momentum = momentum; }

 private:
  SgdConfig config_;
};

/// Adam (Kingma and Ba 2015), AdamW (Loshchilov and Hutter 2019) and what builds on their moments.
template <class Config>
class MomentsRule : public UpdateRule {
 public:
  MomentsRule(const Config& config, const at::Tensor& like) : config_(config), updates_(like) {}

  std::vector<std::string> state() const override { return {"exp_avg", "exp_avg_sq"}; }
  bool decays_weights() const override { return std::is_same_v<Config, AdamWConfig>; }
  void count(const at::Tensor& skip_update) override {
    const auto [beta1, beta2] = config_.betas;
    const at::Tensor& updates = updates_.add(skip_update);
    bias1_ = 1 - at::pow(beta1, updates);
    bias2_root_ = (1 - at::pow(beta2, updates)).sqrt();
  }
  at::Tensor direction(const RuleInput& in) const override {
    add_to_moments(decays_weights() ? in.gradient : with_l2(in), in);
    return in.state[0].div(divisor(in)).div_(bias1_);
  }
  void set_momentum(double momentum) override { config_.betas[0] = momentum; }
  void save(ArchiveWriter& archive) const override { updates_.save(archive); }
  void load(const ArchiveReader& archive) override { updates_.load(archive); }

 protected:
  void add_to_moments(const at::Tensor& gradient, const RuleInput& in) const {
    const auto [beta1, beta2] = config_.betas;
    commit(in.state[0], in.skip_update, [&, weight = 1 - beta1](at::Tensor& m) { m.lerp_(gradient, weight); });
    add_square(in.state[1], gradient, beta2, in.skip_update);
  }
  at::Tensor divisor(const RuleInput& in) const { return in.state[1].sqrt().div_(bias2_root_).add_(config_.eps); }

  Config config_;
  UpdateCount updates_;
  at::Tensor bias1_, bias2_root_;  ///< bias corrections in the current update
};

/// NAdam (Dozat 2016), as torch.optim.NAdam.
class NAdamRule : public MomentsRule<NAdamConfig> {
 public:
  NAdamRule(const NAdamConfig& config, const at::Tensor& like)
      : MomentsRule(config, like), product_(UpdateCount::shared_number(like, 1)) {}

  void count(const at::Tensor& skip_update) override {
    const auto [beta1, beta2] = config_.betas;
    const at::Tensor& updates = updates_.add(skip_update);
    bias2_root_ = (1 - at::pow(beta2, updates)).sqrt();
    const auto momentum = [&, beta1 = beta1](const at::Tensor& update) {
      return beta1 * (1 - 0.5 * at::pow(0.96, update * config_.momentum_decay));
    };
    const at::Tensor now = momentum(updates), next = momentum(updates + 1);
    commit(product_, skip_update, [&](at::Tensor& product) { product.mul_(now); });
    of_gradient_ = (1 - now) / (1 - product_);
    of_average_ = next / (1 - product_ * next);
  }
  at::Tensor direction(const RuleInput& in) const override {
    const at::Tensor gradient = with_l2(in);
    add_to_moments(gradient, in);
    return gradient.mul(of_gradient_).add_(in.state[0].mul(of_average_)).div_(divisor(in));
  }
  void save(ArchiveWriter& archive) const override {
    MomentsRule::save(archive);
    archive.tensor("optimizer.mu_product", product_);
  }
  void load(const ArchiveReader& archive) override {
    MomentsRule::load(archive);
    archive.tensor("optimizer.mu_product", product_);
  }

 private:
  at::Tensor product_;                   ///< product of the momenta of all updates so far
  at::Tensor of_gradient_, of_average_;  ///< weights in the current update
};

/// torch.optim.RMSprop
class RmspropRule : public UpdateRule {
 public:
  explicit RmspropRule(const RmspropConfig& config) : config_(config) {}
  std::vector<std::string> state() const override {
    std::vector<std::string> names{"square_avg"};
    if (config_.centered) names.push_back("grad_avg");
    if (config_.momentum != 0) names.push_back("momentum_buffer");
    return names;
  }
  at::Tensor direction(const RuleInput& in) const override {
    const at::Tensor gradient = with_l2(in);
    add_square(in.state[0], gradient, config_.alpha, in.skip_update);
    at::Tensor mean = in.state[0];
    if (config_.centered) {
      const at::Tensor& average = in.state[1];
      commit(average, in.skip_update, [&](at::Tensor& a) { a.lerp_(gradient, 1 - config_.alpha); });
      mean = mean.addcmul(average, average, -1);
    }
    return with_momentum(gradient.div(mean.sqrt().add_(config_.eps)), config_.momentum, false, in);
  }
  void set_momentum(double momentum) override { config_.momentum = momentum; }

 private:
  RmspropConfig config_;
};

/// torch.optim.Adagrad
class AdagradRule : public UpdateRule {
 public:
  AdagradRule(const AdagradConfig& config, const at::Tensor& like) : config_(config), updates_(like) {}
  std::vector<std::string> state() const override { return {"sum"}; }
  double first_value() const override { return config_.initial_accumulator_value; }
  void count(const at::Tensor& skip_update) override {
    divisor_ = 1 + (updates_.add(skip_update) - 1) * config_.lr_decay;
  }
  at::Tensor direction(const RuleInput& in) const override {
    const at::Tensor gradient = with_l2(in);
    commit(in.state[0], in.skip_update, [&](at::Tensor& sum) { sum.addcmul_(gradient, gradient); });
    return gradient.div(in.state[0].sqrt().add_(config_.eps)).div_(divisor_);
  }
  void set_momentum(double) override { throw BrokenInvariant("adagrad has no momentum"); }
  void save(ArchiveWriter& archive) const override { updates_.save(archive); }
  void load(const ArchiveReader& archive) override { updates_.load(archive); }

 private:
  AdagradConfig config_;
  UpdateCount updates_;
  at::Tensor divisor_;  ///< divides the current update's rate
};

/// Lion (Chen et al. 2023, algorithm 2), as timm's.
class LionRule : public UpdateRule {
 public:
  explicit LionRule(const LionConfig& config) : config_(config) {}
  std::vector<std::string> state() const override { return {"exp_avg"}; }
  bool decays_weights() const override { return true; }
  at::Tensor direction(const RuleInput& in) const override {
    const auto [beta1, beta2] = config_.betas;
    const at::Tensor direction = in.state[0].lerp(in.gradient, 1 - beta1).sign_();
    commit(in.state[0], in.skip_update, [&, weight = 1 - beta2](at::Tensor& m) { m.lerp_(in.gradient, weight); });
    return direction;
  }
  void set_momentum(double momentum) override { config_.betas[0] = momentum; }

 private:
  LionConfig config_;
};

/// LARS (You, Gitman and Ginsburg 2017), as timm's.
class LarsRule : public UpdateRule {
 public:
  explicit LarsRule(const LarsConfig& config) : config_(config) {}
  std::vector<std::string> state() const override {
    return config_.momentum == 0 ? std::vector<std::string>{} : std::vector<std::string>{"momentum"};
  }
  bool measures() const override { return true; }
  at::Tensor measured(const RuleInput& in) const override { return in.gradient; }
  at::Tensor direction(const RuleInput& in) const override {
    return with_momentum(adapted(in), config_.momentum, config_.nesterov, in);
  }
  void set_momentum(double momentum) override { config_.momentum = momentum; }

 private:
  at::Tensor adapted(const RuleInput& in) const {
    if (in.weight_decay == 0 && !config_.always_adapt) return in.gradient;
    at::Tensor ratio = where_positive(config_.trust_coeff * in.parameter_norm /
                                          (in.measured_norm + in.parameter_norm * in.weight_decay + config_.eps),
                                      in);
    if (config_.trust_clip) ratio = (ratio / in.learning_rate).clamp_max(1);
    return with_l2(in).mul(ratio);
  }

  LarsConfig config_;
};

/// LAMB (You et al. 2020), as timm's.
class LambRule : public MomentsRule<LambConfig> {
 public:
  using MomentsRule::MomentsRule;
  bool measures() const override { return true; }
  void count(const at::Tensor& skip_update) override {
    MomentsRule::count(skip_update);
    if (config_.bias_correction) return;
    bias1_ = at::ones_like(bias1_);
    bias2_root_ = at::ones_like(bias2_root_);
  }
  at::Tensor measured(const RuleInput& in) const override {
    add_to_moments(in.gradient, in);
    return update(in);
  }
  at::Tensor direction(const RuleInput& in) const override {
    const at::Tensor full = update(in);
    if (in.weight_decay == 0 && !config_.always_adapt) return full;
    const at::Tensor ratio = where_positive(in.parameter_norm / in.measured_norm, in);
    return full.mul(config_.trust_clip ? ratio.clamp_max(1) : ratio);
  }

 private:
  at::Tensor update(const RuleInput& in) const {
    const at::Tensor of_moments = in.state[0].div(bias1_).div_(divisor(in));
    return in.weight_decay != 0 ? of_moments.add(in.values, in.weight_decay) : of_moments;
  }
};

/// What the learning rate is multiplied by for a matrix of this size.
double rate_factor(MuonRate rate, double rows, double columns) {
  if (rate == MuonRate::match_rms_adamw) return 0.2 * std::sqrt(std::max(rows, columns));
  return std::sqrt(std::max(1.0, rows / columns));
}

AdamWConfig adamw_of(const MuonConfig& config) {
  AdamWConfig adamw;
  adamw.betas = config.adamw_betas;
  adamw.eps = config.adamw_eps;
  return adamw;
}

/// Updates matrices (ParameterSettings::orthogonal) by Muon, and the others by AdamW.
class MuonRule : public UpdateRule {
 public:
  MuonRule(const MuonConfig& config, const at::Tensor& like)
      : config_(config), adamw_(make_update_rule(adamw_of(config), like)) {}

  std::vector<std::string> state() const override {
    std::vector<std::string> names{kMomentum};
    for (const std::string& name : adamw_->state()) names.push_back(name);
    return names;
  }
  bool keeps(const std::string& state, const ParameterSettings& parameter) const override {
    return (state == kMomentum) == parameter.orthogonal;
  }
  bool decays_weights() const override { return true; }
  void count(const at::Tensor& skip_update) override { adamw_->count(skip_update); }

  at::Tensor direction(const RuleInput& in) const override {
    RuleInput for_adamw = in;
    for_adamw.state.erase(for_adamw.state.begin());
    return adamw_->direction(for_adamw);
  }
  at::Tensor part_of_whole(const RuleInput& in) const override {
    const at::Tensor& momentum = in.state.front();
    commit(momentum, in.skip_update, [&](at::Tensor& m) { m.lerp_(in.gradient, 1 - config_.momentum); });
    return config_.nesterov ? in.gradient.lerp(momentum, config_.momentum) : momentum;
  }
  at::Tensor whole_direction(const at::Tensor& whole) const override {
    const at::Tensor matrix = whole.flatten(1);
    const double factor =
        rate_factor(config_.adjust_lr_fn, static_cast<double>(matrix.size(0)), static_cast<double>(matrix.size(1)));
    return orthogonalized(matrix, config_).to(whole.scalar_type()).mul(factor).view(whole.sizes());
  }

  void set_momentum(double momentum) override { config_.momentum = momentum; }
  void save(ArchiveWriter& archive) const override { adamw_->save(archive); }
  void load(const ArchiveReader& archive) override { adamw_->load(archive); }

 private:
  static constexpr const char* kMomentum = "momentum_buffer";

  MuonConfig config_;
  std::unique_ptr<UpdateRule> adamw_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_update_rule(const OptimizerConfig& config, const at::Tensor& like) {
  struct {
    using Made = std::unique_ptr<UpdateRule>;
    Made operator()(const SgdConfig& c) const { return std::make_unique<SgdRule>(c); }
    Made operator()(const AdamConfig& c) const { return std::make_unique<MomentsRule<AdamConfig>>(c, like); }
    Made operator()(const AdamWConfig& c) const { return std::make_unique<MomentsRule<AdamWConfig>>(c, like); }
    Made operator()(const NAdamConfig& c) const { return std::make_unique<NAdamRule>(c, like); }
    Made operator()(const RmspropConfig& c) const { return std::make_unique<RmspropRule>(c); }
    Made operator()(const AdagradConfig& c) const { return std::make_unique<AdagradRule>(c, like); }
    Made operator()(const LionConfig& c) const { return std::make_unique<LionRule>(c); }
    Made operator()(const LarsConfig& c) const { return std::make_unique<LarsRule>(c); }
    Made operator()(const LambConfig& c) const { return std::make_unique<LambRule>(c, like); }
    Made operator()(const MuonConfig& c) const { return std::make_unique<MuonRule>(c, like); }

    const at::Tensor& like;
  } make{like};
  return std::visit(make, config);
}

at::Tensor orthogonalized(const at::Tensor& matrix, const MuonConfig& config) {
  const auto [a, b, c] = config.ns_coefficients;
  const bool is_tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = matrix.to(config.ns_dtype == MuonType::bfloat16 ? at::kBFloat16 : at::kFloat);
  if (is_tall) x = x.t();
  x = x.div(x.norm().clamp_min(config.eps));
  for (int64_t i = 0; i < config.ns_steps; ++i) {
    const at::Tensor gram = x.mm(x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, b, c), x, a);
  }
  return (is_tall ? x.t() : x).contiguous();
}

}  // namespace trainopt
