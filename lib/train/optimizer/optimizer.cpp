#include "train/optimizer/optimizer.h"

#include "device/tensor.h"
#include "device/trace_range.h"
#include "train/optimizer/update_rules.h"
#include "train/parameter_store.h"

#include <ATen/record_function.h>

#include <fmt/ranges.h>

#include <cmath>
#include <set>

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
  LoopOptimizer(const OptimizerConfig& config, const std::map<std::string, ParameterSettings>& settings,
                std::unique_ptr<WeightRounding> rounding, const ParameterStore& store)
      : rule_(make_update_rule(config, store.parameters().front().second)),
        rounding_(std::move(rounding)),
        settings_(settings_by_parameter(config, store, settings)),
        learning_rate_(base_learning_rate(config)),
        store_(store) {
    for (const auto& [name, own] : settings)
      if (own.orthogonal) orthogonal_.insert(name);
    for (const std::string& name : rule_->state()) {
      const bool of_orthogonal = rule_->keeps(name, {.orthogonal = true}), of_others = rule_->keeps(name, {});
      states_.emplace_back(name, store, [=, this](const std::string& parameter) {
        return orthogonal_.contains(parameter) ? of_orthogonal : of_others;
      });
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
      if (!all.tensors()[i].defined() || settings_[i].orthogonal) continue;
      WideParameter parameter(all.parameters()[i]);
      RuleInput in = input(parameter, all, i, skip_update);
      if (norms.defined()) {
        const at::Tensor both = norms[static_cast<int64_t>(i)];
        in.parameter_norm = both[0], in.measured_norm = both[1];
      }
      const at::Tensor direction = rule_->direction(in);
      in.gradient.reset();  // a bfloat16 parameter's gradient is a copy
      apply(direction, i, parameter, skip_update);
    }
    if (!orthogonal_.empty()) update_orthogonal(all, skip_update);
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
                 .weight_decay = settings_[i].weight_decay,
                 .skip_update = skip_update,
                 .learning_rate = learning_rate_ * settings_[i].rate};
    for (ParameterState& state : states_) in.state.push_back(state[i]);
    return in;
  }

  void apply(const at::Tensor& direction, size_t i, WideParameter& parameter, const at::Tensor& skip_update) {
    const double rate = learning_rate_ * settings_[i].rate, weight_decay = settings_[i].weight_decay;
    parameter.commit(skip_update, *rounding_, [&](at::Tensor& p) {
      if (weight_decay != 0 && rule_->decays_weights()) p.mul_(1 - rate * weight_decay);
      p.add_(direction, -rate);
    });
  }

  void update_orthogonal(Gradients& all, const at::Tensor& skip_update) {
    store_.change_whole({.wanted = [this](const std::string& name) { return orthogonal_.contains(name); },
                         .part =
                             [&](size_t i) {
                               if (!all.tensors()[i].defined()) return at::Tensor();
                               return rule_->part_of_whole(
                                   input(WideParameter(all.parameters()[i]), all, i, skip_update));
                             },
                         .change = [this](const at::Tensor& whole) { return rule_->whole_direction(whole); },
                         .use =
                             [&](size_t i, const at::Tensor& direction) {
                               WideParameter parameter(all.parameters()[i]);
                               apply(direction, i, parameter, skip_update);
                             }});
  }

  /// The norm in double, because squares of float norms may leave the range.
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
  std::vector<ParameterSettings> settings_;  ///< one for each parameter
  std::set<std::string> orthogonal_;         ///< names of the parameters with that setting, on any rank
  double learning_rate_;
  std::vector<ParameterState> states_;
  const ParameterStore& store_;
};

template <class Config>
std::string decay_text(const Config& c) {
  std::string text = fmt::format(", weight decay {}", c.weight_decay);
  if (const auto& spared = c.common.no_decay; !spared.empty())
    text += fmt::format(" but not of {}", fmt::join(spared, ", "));
  if (c.common.layer_decay != 1) text += fmt::format(", layer decay {}", c.common.layer_decay);
  for (const ParameterGroup& group : c.common.groups) {
    text += fmt::format("; {}:", fmt::join(group.parameters, ", "));
    if (group.lr) text += fmt::format(" lr {}", *group.lr);
    if (group.weight_decay) text += fmt::format("{} weight decay {}", group.lr ? "," : "", *group.weight_decay);
  }
  return text;
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
  std::string operator()(const MuonConfig& c) const {
    return fmt::format("Muon{}, {} iterations in {}, AdamW with lr {} for other parameters{}", momentum(c), c.ns_steps,
                       word_of(c.ns_dtype), c.adamw_lr.value_or(c.lr), decay_text(c));
  }

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

ParameterState::ParameterState(std::string name, const ParameterStore& store, NameFilter wanted)
    : name_(std::move(name)), store_(store), wanted_(std::move(wanted)) {
  for (const auto& [parameter_name, parameter] : store.parameters()) {
    tensors_.emplace_back();
    if (!wanted_(parameter_name)) continue;
    tensors_.back() =
        at::zeros_like(parameter.detach(), parameter.options().dtype(at_least_float32(parameter)).requires_grad(false));
  }
}

std::optional<ParameterState> momentum_of(double momentum, const ParameterStore& store) {
  if (momentum == 0) return std::nullopt;
  return ParameterState("momentum", store);
}

int64_t ParameterState::bytes() const {
  int64_t bytes = 0;
  for (const auto& tensor : tensors_)
    if (tensor.defined()) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

void ParameterState::save(ArchiveWriter& archive) const { store_.save(archive, prefix(), tensors_, wanted_); }

void ParameterState::load(const ArchiveReader& archive) { store_.load(archive, prefix(), tensors_, wanted_); }

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

double base_learning_rate(const OptimizerConfig& config) {
  return std::visit([](const auto& c) { return c.lr; }, config);
}

double learning_rate_factor(const OptimizerConfig& config, int64_t step_samples) {
  const auto& common = common_of(config);
  if (common.lr_scaling == LrScaling::none) return 1;
  const double ratio = static_cast<double>(step_samples) / static_cast<double>(common.reference_batch.value());
  return common.lr_scaling == LrScaling::linear ? ratio : std::sqrt(ratio);
}

std::vector<ParameterSettings> settings_by_parameter(const OptimizerConfig& config, const ParameterStore& parameters,
                                                     const std::map<std::string, ParameterSettings>& settings) {
  const double decay = std::visit([](const auto& c) { return c.weight_decay; }, config);
  std::vector<ParameterSettings> all;
  for (const auto& [name, parameter] : parameters.parameters()) {
    const auto found = settings.find(name);
    all.push_back(found != settings.end() ? found->second : ParameterSettings{.weight_decay = decay});
  }
  return all;
}

std::unique_ptr<Optimizer> make_loop_optimizer(const OptimizerConfig& config, const ParameterStore& parameters,
                                               const std::map<std::string, ParameterSettings>& settings,
                                               std::unique_ptr<WeightRounding> rounding) {
  return std::make_unique<LoopOptimizer>(config, settings, std::move(rounding), parameters);
}

}  // namespace trainopt
