#include "train/optimizer.h"

#include "device/tensor.h"
#include "device/trace_range.h"
#include "model/chosen_parameters.h"
#include "train/parameter_store.h"
#include "train/update_rules.h"

#include <ATen/record_function.h>

#include <fmt/ranges.h>

#include <cmath>

namespace trainopt {
namespace {

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

/// Applies an UpdateRule to one parameter after another.
class LoopOptimizer : public Optimizer {
 public:
  LoopOptimizer(std::unique_ptr<UpdateRule> rule, double learning_rate, std::vector<double> weight_decays,
                std::unique_ptr<WeightRounding> rounding, const ParameterStore& store)
      : rule_(std::move(rule)),
        rounding_(std::move(rounding)),
        weight_decays_(std::move(weight_decays)),
        learning_rate_(learning_rate),
        store_(store) {
    for (const std::string& name : rule_->state()) {
      states_.emplace_back(name, store);
      if (rule_->first_value() != 0)
        for (const at::Tensor& tensor : states_.back().tensors()) tensor.fill_(rule_->first_value());
    }
  }

  void set_learning_rate(double learning_rate) override { learning_rate_ = learning_rate; }
  void set_momentum(double momentum) override { rule_->set_momentum(momentum); }

  void update(Gradients& all, const at::Tensor& skip_update) override {
    const at::NoGradGuard no_grad;
    rule_->count(skip_update);
    const at::Tensor norms = rule_->measures() ? norms_of(all, skip_update) : at::Tensor();
    for (size_t i = 0; i < all.tensors().size(); ++i) {
      if (!all.tensors()[i].defined()) continue;
      WideParameter parameter(all.parameters()[i]);
      RuleInput in = input(parameter, all, i, skip_update);
      if (norms.defined()) {
        const at::Tensor both = norms[static_cast<int64_t>(i)];
        in.parameter_norm = both[0], in.measured_norm = both[1];
      }
      const at::Tensor direction = rule_->direction(in);
      in.gradient.reset();  // of a bfloat16 parameter it is a copy
      parameter.commit(skip_update, *rounding_, [&](at::Tensor& p) {
        if (in.weight_decay != 0 && rule_->decays_weights()) p.mul_(1 - learning_rate_ * in.weight_decay);
        p.add_(direction, -learning_rate_);
      });
    }
  }

  void save(ArchiveWriter& archive) const override {
    rule_->save(archive);
    for (const ParameterState& state : states_) state.save(archive);
  }
  void load(const ArchiveReader& archive) override {
    rule_->load(archive);
    for (ParameterState& state : states_) state.load(archive);
  }
  int64_t state_bytes() const override {
    int64_t bytes = 0;
    for (const ParameterState& state : states_) bytes += state.bytes();
    return bytes;
  }

 private:
  RuleInput input(const WideParameter& parameter, const Gradients& all, size_t i, const at::Tensor& skip_update) {
    RuleInput in{.values = parameter.values(),
                 .gradient = all.tensors()[i].to(parameter.values().scalar_type()),
                 .weight_decay = weight_decays_[i],
                 .skip_update = skip_update,
                 .learning_rate = learning_rate_};
    for (ParameterState& state : states_) in.state.push_back(state[i]);
    return in;
  }

  /// In double, because squares of float norms may leave the range.
  static at::Tensor norm_of(const at::Tensor& values) {
    return at::linalg_vector_norm(values, 2, std::nullopt, /*keepdim=*/false, at::kDouble);
  }

  /// [n, 2]: 2-norms of each whole parameter and of what the rule measures, although this rank may have only parts.
  at::Tensor norms_of(const Gradients& all, const at::Tensor& skip_update) {
    std::vector<at::Tensor> squares;
    for (size_t i = 0; i < all.tensors().size(); ++i) {
      const WideParameter parameter(all.parameters()[i]);
      const at::Tensor none = at::zeros({2}, parameter.values().options().dtype(at::kDouble));
      if (!all.tensors()[i].defined()) {
        squares.push_back(none);
        continue;
      }
      const RuleInput in = input(parameter, all, i, skip_update);
      const at::Tensor measured = rule_->measured(in);
      squares.push_back(at::stack({norm_of(in.values), norm_of(measured)}).square_());
    }
    return store_.sums_of_parts(at::stack(squares)).sqrt_();
  }

  std::unique_ptr<UpdateRule> rule_;
  std::unique_ptr<WeightRounding> rounding_;
  std::vector<double> weight_decays_;  ///< by parameter
  double learning_rate_;
  std::vector<ParameterState> states_;
  const ParameterStore& store_;
};

template <class Config>
std::string decay_text(const Config& c) {
  const std::string text = fmt::format(", weight decay {}", c.weight_decay);
  const auto& spared = c.common.no_decay;
  return spared.empty() ? text : fmt::format("{} but not of {}", text, fmt::join(spared, ", "));
}

/// One line about an optimizer.
struct OptimizerText {
  std::string operator()(const SgdConfig& c) const { return "SGD" + momentum(c) + decay_text(c); }
  std::string operator()(const AdamConfig& c) const { return "Adam" + moments(c) + decay_text(c); }
  std::string operator()(const AdamWConfig& c) const { return "AdamW" + moments(c) + decay_text(c); }
  std::string operator()(const NAdamConfig& c) const {
    return fmt::format("NAdam{}, momentum decay {}{}", moments(c), c.momentum_decay, decay_text(c));
  }
  std::string operator()(const RmspropConfig& c) const {
    return fmt::format("RMSprop, lr {}, alpha {}, momentum {}{}{}", c.lr, c.alpha, c.momentum,
                       c.centered ? ", centered" : "", decay_text(c));
  }
  std::string operator()(const AdagradConfig& c) const {
    return fmt::format("Adagrad, lr {}, lr decay {}{}", c.lr, c.lr_decay, decay_text(c));
  }
  std::string operator()(const LionConfig& c) const {
    return fmt::format("Lion, lr {}, betas {} {}{}", c.lr, c.betas[0], c.betas[1], decay_text(c));
  }
  std::string operator()(const LarsConfig& c) const {
    return fmt::format("LARS{}, trust coefficient {}{}{}", momentum(c), c.trust_coeff, adapts(c), decay_text(c));
  }
  std::string operator()(const LambConfig& c) const { return "LAMB" + moments(c) + adapts(c) + decay_text(c); }

  template <class Config>
  static std::string momentum(const Config& c) {
    return fmt::format(", lr {}, momentum {}{}", c.lr, c.momentum, c.nesterov ? " (Nesterov)" : "");
  }
  template <class Config>
  static std::string moments(const Config& c) {
    return fmt::format(", lr {}, betas {} {}, eps {}", c.lr, c.betas[0], c.betas[1], c.eps);
  }
  template <class Config>
  static std::string adapts(const Config& c) {
    return std::string(c.always_adapt ? ", adapts every parameter" : "") + (c.trust_clip ? ", ratio at most 1" : "");
  }
};

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

std::string describe_optimizer(const OptimizerConfig& config) { return std::visit(OptimizerText(), config); }

std::optional<std::string> momentum_key(const OptimizerConfig& config) {
  return std::visit(
      [](const auto& c) -> std::optional<std::string> {
        if constexpr (requires { c.betas; }) return "optimizer.betas";
        if constexpr (requires { c.momentum; })
          if (c.momentum > 0) return "optimizer.momentum";
        return std::nullopt;
      },
      config);
}

int64_t tensors_per_parameter(const OptimizerConfig& config) {
  const auto rule = make_update_rule(config, at::empty({}, at::kMeta));
  return static_cast<int64_t>(rule->state().size());
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
  return std::make_unique<LoopOptimizer>(make_update_rule(config, parameters.parameters().front().second),
                                         base_learning_rate(config), weight_decays(config, parameters, without_decay),
                                         std::move(rounding), parameters);
}

}  // namespace trainopt
