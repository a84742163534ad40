#include "train/optimizer.h"

#include "device/tensor.h"
#include "device/trace_range.h"
#include "model/chosen_parameters.h"
#include "train/parameter_store.h"

#include <ATen/record_function.h>

#include <fmt/ranges.h>

#include <cmath>

namespace trainopt {
namespace {

/// Applies `change` to `target` in place, and reverts it if the update is skipped.
template <class Change>
void commit(at::Tensor& target, const at::Tensor& skip_update, Change change) {
  const at::Tensor before = skip_update.defined() ? target.clone() : at::Tensor();
  change(target);
  if (before.defined()) at::where_out(target, skip_update > 0, before, target);
}

at::ScalarType at_least_float32(const at::Tensor& tensor) { return at::promoteTypes(tensor.scalar_type(), at::kFloat); }

/// A parameter as the optimizer computes with it: at least in float32.
class WideParameter {
 public:
  explicit WideParameter(const std::pair<std::string, at::Tensor>& parameter)
      : name_(parameter.first), stored_(parameter.second), values_(stored_.to(at_least_float32(stored_))) {}

  const at::Tensor& values() const { return values_; }
  /// Like commit() above.
  template <class Change>
  void commit(const at::Tensor& skip_update, const WeightRounding& rounding, Change change) {
    trainopt::commit(values_, skip_update, change);
    if (values_.is_same(stored_)) return;
    RECORD_FUNCTION(kWeightRoundingLabel, std::vector<c10::IValue>({values_}));
    rounding.store(name_, values_, stored_);
  }

 private:
  const std::string& name_;
  at::Tensor stored_, values_;
};

class LoopSgd : public Optimizer {
 public:
  LoopSgd(const SgdConfig& config, std::vector<double> weight_decays, std::unique_ptr<WeightRounding> rounding,
          const ParameterStore& store)
      : config_(config),
        rounding_(std::move(rounding)),
        weight_decays_(std::move(weight_decays)),
        learning_rate_(config.lr),
        momentum_(momentum_of(config, store)) {}

  void set_learning_rate(double learning_rate) override { learning_rate_ = learning_rate; }

  void update(Gradients& all, const at::Tensor& skip_update) override {
    const at::NoGradGuard no_grad;
    const auto& gradients = all.tensors();
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      WideParameter parameter(all.parameters()[i]);
      at::Tensor gradient = gradients[i].to(parameter.values().scalar_type());
      if (weight_decays_[i] != 0) gradient = gradient.add(parameter.values(), weight_decays_[i]);
      if (momentum_) {
        at::Tensor& velocity = (*momentum_)[i];
        commit(velocity, skip_update, [&](at::Tensor& momentum) { momentum.mul_(config_.momentum).add_(gradient); });
        gradient = config_.nesterov ? gradient.add(velocity, config_.momentum) : velocity;
      }
      parameter.commit(skip_update, *rounding_, [&](at::Tensor& p) { p.add_(gradient, -learning_rate_); });
    }
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
  std::unique_ptr<WeightRounding> rounding_;
  std::vector<double> weight_decays_;  ///< by parameter
  double learning_rate_;
  std::optional<ParameterState> momentum_;
};

/// Adam (Kingma & Ba 2015) and, with `decoupled`, AdamW (Loshchilov & Hutter 2019).
class LoopAdam : public Optimizer {
 public:
  LoopAdam(const AdamConfig& config, std::vector<double> weight_decays, bool decoupled,
           std::unique_ptr<WeightRounding> rounding, const ParameterStore& store)
      : config_(config),
        rounding_(std::move(rounding)),
        weight_decays_(std::move(weight_decays)),
        decoupled_(decoupled),
        learning_rate_(config.lr),
        first_("exp_avg", store),
        second_("exp_avg_sq", store),
        updates_(at::zeros({}, store.parameters().front().second.options().dtype(at::kDouble).requires_grad(false))) {}

  void set_learning_rate(double learning_rate) override { learning_rate_ = learning_rate; }

  void update(Gradients& all, const at::Tensor& skip_update) override {
    const at::NoGradGuard no_grad;
    const auto [beta1, beta2] = config_.betas;
    // Counted on the device, because only the device knows whether this update is skipped.
    commit(updates_, skip_update, [](at::Tensor& updates) { updates.add_(1); });
    const at::Tensor bias1 = 1 - at::pow(beta1, updates_), bias2_root = (1 - at::pow(beta2, updates_)).sqrt();
    const auto& gradients = all.tensors();
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      WideParameter parameter(all.parameters()[i]);
      at::Tensor gradient = gradients[i].to(parameter.values().scalar_type());
      if (weight_decays_[i] != 0 && !decoupled_) gradient = gradient.add(parameter.values(), weight_decays_[i]);
      commit(first_[i], skip_update, [&](at::Tensor& first) { first.lerp_(gradient, 1 - beta1); });
      commit(second_[i], skip_update,
             [&](at::Tensor& second) { second.mul_(beta2).addcmul_(gradient, gradient, 1 - beta2); });
      parameter.commit(skip_update, *rounding_, [&](at::Tensor& p) {
        if (weight_decays_[i] != 0 && decoupled_) p.mul_(1 - learning_rate_ * weight_decays_[i]);
        p.sub_((learning_rate_ / bias1) * (first_[i] / (second_[i].sqrt().div_(bias2_root).add_(config_.eps))));
      });
    }
  }

  void save(ArchiveWriter& archive) const override {
    archive.tensor("optimizer.updates", updates_);
    first_.save(archive);
    second_.save(archive);
  }
  void load(const ArchiveReader& archive) override {
    archive.tensor("optimizer.updates", updates_);
    first_.load(archive);
    second_.load(archive);
  }
  int64_t state_bytes() const override { return first_.bytes() + second_.bytes(); }

 private:
  AdamConfig config_;
  std::unique_ptr<WeightRounding> rounding_;
  std::vector<double> weight_decays_;  ///< by parameter
  bool decoupled_;
  double learning_rate_;
  ParameterState first_, second_;
  at::Tensor updates_;
};

template <class Config>
std::string decay_text(const Config& c) {
  const std::string text = fmt::format("weight decay {}", c.weight_decay);
  const auto& spared = c.common.no_decay;
  return spared.empty() ? text : fmt::format("{} but not of {}", text, fmt::join(spared, ", "));
}

}  // namespace

ParameterState::ParameterState(std::string name, const ParameterStore& store) : name_(std::move(name)), store_(store) {
  for (const auto& [parameter_name, parameter] : store.parameters())
    tensors_.push_back(at::zeros_like(parameter.detach(),
                                      parameter.options().dtype(at_least_float32(parameter)).requires_grad(false)));
}

std::optional<ParameterState> momentum_of(const SgdConfig& config, const ParameterStore& store) {
  if (config.momentum == 0) return std::nullopt;
  return ParameterState("momentum", store);
}

int64_t ParameterState::bytes() const {
  int64_t bytes = 0;
  for (const auto& tensor : tensors_) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

void ParameterState::save(ArchiveWriter& archive) const { store_.save(archive, prefix(), tensors_); }

void ParameterState::load(const ArchiveReader& archive) { store_.load(archive, prefix(), tensors_); }

std::unique_ptr<Gradients> Optimizer::make_gradients() const { return std::make_unique<Gradients>(); }

void Optimizer::step(Gradients& gradients, const at::Tensor& skip_update) {
  const TraceRange range(kOptimizerLabel);
  update(gradients, skip_update);
}

std::string describe_optimizer(const OptimizerConfig& config) {
  struct {
    std::string operator()(const SgdConfig& c) const {
      return fmt::format("SGD, lr {}, momentum {}{}, {}", c.lr, c.momentum, c.nesterov ? " (Nesterov)" : "",
                         decay_text(c));
    }
    std::string operator()(const AdamConfig& c) const { return "Adam" + adam(c); }
    std::string operator()(const AdamWConfig& c) const { return "AdamW" + adam(c); }

    static std::string adam(const AdamConfig& c) {
      return fmt::format(", lr {}, betas {} {}, eps {}, {}", c.lr, c.betas[0], c.betas[1], c.eps, decay_text(c));
    }
  } text;
  return std::visit(text, config);
}

double base_learning_rate(const OptimizerConfig& config) {
  return std::visit([](const auto& c) { return c.lr; }, config);
}

double learning_rate_factor(const OptimizerConfig& config, int64_t step_samples) {
  const auto& common = common_of(config);
  if (common.lr_scaling == LrScaling::none) return 1;
  const double ratio = static_cast<double>(step_samples) / static_cast<double>(common.reference_batch.value());
  return common.lr_scaling == LrScaling::linear ? ratio : std::sqrt(ratio);
}

std::set<std::string> without_decay(const OptimizerConfig& config, const Model& model) {
  return chosen_parameters(model, common_of(config).no_decay, "optimizer.no_decay");
}

std::vector<double> weight_decays(const OptimizerConfig& config, const ParameterStore& parameters,
                                  const std::set<std::string>& without_decay) {
  const double decay = std::visit([](const auto& c) { return c.weight_decay; }, config);
  std::vector<double> decays;
  for (const auto& [name, parameter] : parameters.parameters())
    decays.push_back(without_decay.contains(name) ? 0 : decay);
  return decays;
}

std::unique_ptr<Optimizer> make_loop_optimizer(const OptimizerConfig& config, const ParameterStore& parameters,
                                               const std::set<std::string>& without_decay,
                                               std::unique_ptr<WeightRounding> rounding) {
  std::vector<double> decays = weight_decays(config, parameters, without_decay);
  if (const auto* sgd = std::get_if<SgdConfig>(&config))
    return std::make_unique<LoopSgd>(*sgd, std::move(decays), std::move(rounding), parameters);
  const auto* adamw = std::get_if<AdamWConfig>(&config);
  const AdamConfig& adam = adamw != nullptr ? *adamw : std::get<AdamConfig>(config);
  return std::make_unique<LoopAdam>(adam, std::move(decays), adamw != nullptr, std::move(rounding), parameters);
}

}  // namespace trainopt
