// The section `optimizer` of a recipe. Names are those of torch.optim and timm; weight decay is 0 unless it is given.
#pragma once

#include "config/describe.h"
#include "config/form.h"

namespace trainopt {

// An item of `optimizer.groups`: parameters with a learning rate or weight decay of their own, as torch.optim's
// parameter groups.

struct ParameterGroup {
  std::vector<std::string> parameters;  ///< words for chosen_parameters()
  std::optional<double> lr, weight_decay;
};
template <class V>
void describe(V& v, ParameterGroup& c) {
  v.field("parameters", c.parameters, "Words that choose parameters, as in no_decay.");
  v.field("lr", c.lr, "Learning rate in place of optimizer.lr.", at_least(0));
  v.field("weight_decay", c.weight_decay, "Weight decay in place of optimizer.weight_decay.", at_least(0));
}

template <>
struct Form<ParameterGroup> {
  static std::string type_text();
  static Json schema(const Bounds& bounds);
  static std::optional<ParameterGroup> read(const Value& value, const Location& location);
  static Value write(const ParameterGroup& group);
};

/// How the learning rate follows the number of samples in a step.
enum class LrScaling { none, linear, sqrt };
template <>
struct Choices<LrScaling> {
  static constexpr std::array all = {Choice<LrScaling>{"none", LrScaling::none},
                                     Choice<LrScaling>{"linear", LrScaling::linear},
                                     Choice<LrScaling>{"sqrt", LrScaling::sqrt}};
};

/// What every optimizer has.
struct CommonOptimizerConfig {
  std::vector<std::string> no_decay;
  std::vector<ParameterGroup> groups;
  double layer_decay = 1;
  LrScaling lr_scaling = LrScaling::none;
  std::optional<int64_t> reference_batch;
};
template <class V>
void describe_common(V& v, CommonOptimizerConfig& c) {
  v.field("no_decay", c.no_decay,
          "Parameters without weight decay: norm (weights and biases of batch-norm and layer norm), bias, embedding, "
          "the name of a unit, or a parameter's name or its beginning up to a dot.",
          any(), alias("no_weight_decay"));
  v.field("groups", c.groups,
          "Parameters with a learning rate or weight decay of their own, such as [{parameters: [bias], lr: 0.2}]. A "
          "schedule changes their rate in proportion to lr.");
  v.field("layer_decay", c.layer_decay,
          "Multiply the learning rate of each unit by this once for every unit between it and the end, the last unit "
          "keeping lr (Bao et al. 2022); 1: one rate for all.",
          Bounds{.low = 0, .high = 1, .low_included = false});
  v.field("lr_scaling", c.lr_scaling,
          "Multiply lr by (samples per step ÷ reference_batch): linear, as Goyal et al. (2017) do with SGD, or by its "
          "square root (sqrt), as is usual with Adam; none: use lr as it is.");
  v.field("reference_batch", c.reference_batch, "lr_scaling: samples per step at which lr was chosen.",
          in_range(1, 1e12));
}

// The options that several optimizers share.
template <class V, class Config>
void describe_lr(V& v, Config& c) {
  v.field("lr", c.lr, "Learning rate.", at_least(0), alias("learning_rate"));
}
template <class V, class Config>
void describe_l2(V& v, Config& c) {
  v.field("weight_decay", c.weight_decay, "L2 penalty added to the gradient.", at_least(0));
}
template <class V, class Config>
void describe_momentum(V& v, Config& c) {
  v.field("momentum", c.momentum, "Momentum factor; 0: no momentum.", half_open(0.0, 1.0));
}
template <class V, class Config>
void describe_nesterov(V& v, Config& c) {
  v.field("nesterov", c.nesterov, "Use Nesterov momentum; needs momentum above 0.");
}
template <class V, class Config>
void describe_moments(V& v, Config& c) {
  v.field("betas", c.betas, "Decay rates beta1, beta2 of the first and second moment.", half_open(0.0, 1.0));
  v.field("eps", c.eps, "Added to the square root of the second moment.", at_least(0));
}
template <class V, class Config>
void describe_layerwise(V& v, Config& c) {
  v.field("trust_clip", c.trust_clip, "Never multiply a parameter's rate by more than 1.");
  v.field("always_adapt", c.always_adapt,
          "Adapt the rate of parameters without weight decay too; otherwise only of those with it.");
}

struct SgdConfig {
  static constexpr std::string_view kName = "sgd";
  double lr = 0.001, momentum = 0.9, weight_decay = 0.0;
  bool nesterov = false;
  CommonOptimizerConfig common = {};
};
template <class V>
void describe(V& v, SgdConfig& c) {
  describe_lr(v, c);
  describe_momentum(v, c);
  describe_l2(v, c);
  describe_nesterov(v, c);
  describe_common(v, c.common);
}

struct AdamConfig {
  static constexpr std::string_view kName = "adam";
  double lr = 0.001, weight_decay = 0.0, eps = 1e-8;
  std::array<double, 2> betas{0.9, 0.999};
  CommonOptimizerConfig common = {};
};
struct AdamWConfig : AdamConfig {
  static constexpr std::string_view kName = "adamw";
};
template <class V>
void describe(V& v, AdamConfig& c) {
  describe_lr(v, c);
  describe_moments(v, c);
  v.field("weight_decay", c.weight_decay,
          "adam: L2 penalty added to the gradient; adamw: decay applied to the weight itself.", at_least(0));
  describe_common(v, c.common);
}

struct NAdamConfig {
  static constexpr std::string_view kName = "nadam";
  double lr = 0.002, weight_decay = 0.0, eps = 1e-8, momentum_decay = 4e-3;
  std::array<double, 2> betas{0.9, 0.999};
  CommonOptimizerConfig common = {};
};
template <class V>
void describe(V& v, NAdamConfig& c) {
  describe_lr(v, c);
  describe_moments(v, c);
  v.field("momentum_decay", c.momentum_decay, "How fast the momentum approaches beta1.", at_least(0));
  describe_l2(v, c);
  describe_common(v, c.common);
}

struct RmspropConfig {
  static constexpr std::string_view kName = "rmsprop";
  double lr = 0.01, alpha = 0.99, eps = 1e-8, momentum = 0.0, weight_decay = 0.0;
  bool centered = false;
  CommonOptimizerConfig common = {};
};
template <class V>
void describe(V& v, RmspropConfig& c) {
  describe_lr(v, c);
  v.field("alpha", c.alpha, "Decay rate of the mean of squared gradients.", half_open(0.0, 1.0));
  v.field("eps", c.eps, "Added to the root of that mean.", at_least(0));
  describe_momentum(v, c);
  v.field("centered", c.centered, "Divide by an estimate of the gradient's standard deviation.");
  describe_l2(v, c);
  describe_common(v, c.common);
}

struct AdagradConfig {
  static constexpr std::string_view kName = "adagrad";
  double lr = 0.01, lr_decay = 0.0, eps = 1e-10, initial_accumulator_value = 0.0, weight_decay = 0.0;
  CommonOptimizerConfig common = {};
};
template <class V>
void describe(V& v, AdagradConfig& c) {
  describe_lr(v, c);
  v.field("lr_decay", c.lr_decay, "The rate of update t is divided by 1 + (t − 1) · this.", at_least(0));
  v.field("initial_accumulator_value", c.initial_accumulator_value, "First value of the sum of squared gradients.",
          at_least(0));
  v.field("eps", c.eps, "Added to the root of that sum.", at_least(0));
  describe_l2(v, c);
  describe_common(v, c.common);
}

struct LionConfig {
  static constexpr std::string_view kName = "lion";
  double lr = 1e-4, weight_decay = 0.0;
  std::array<double, 2> betas{0.9, 0.99};
  CommonOptimizerConfig common = {};
};
template <class V>
void describe(V& v, LionConfig& c) {
  describe_lr(v, c);
  v.field("betas", c.betas, "Weights of the average in the update's sign, and in the average itself.",
          half_open(0.0, 1.0));
  v.field("weight_decay", c.weight_decay, "Decay applied to the weight itself.", at_least(0));
  describe_common(v, c.common);
}

struct LarsConfig {
  static constexpr std::string_view kName = "lars";
  double lr = 1.0, momentum = 0.9, weight_decay = 0.0, trust_coeff = 0.001, eps = 1e-8;
  bool nesterov = false, trust_clip = false, always_adapt = false;
  CommonOptimizerConfig common = {};
};
template <class V>
void describe(V& v, LarsConfig& c) {
  describe_lr(v, c);
  describe_momentum(v, c);
  describe_nesterov(v, c);
  v.field("trust_coeff", c.trust_coeff, "Size of an update relative to its parameter's norm, at lr 1.", above(0));
  v.field("eps", c.eps, "Added to the divisor of the ratio of norms.", at_least(0));
  describe_layerwise(v, c);
  describe_l2(v, c);
  describe_common(v, c.common);
}

struct LambConfig {
  static constexpr std::string_view kName = "lamb";
  double lr = 0.001, weight_decay = 0.0, eps = 1e-6;
  std::array<double, 2> betas{0.9, 0.999};
  bool bias_correction = true, trust_clip = false, always_adapt = false;
  CommonOptimizerConfig common = {};
};
template <class V>
void describe(V& v, LambConfig& c) {
  describe_lr(v, c);
  describe_moments(v, c);
  v.field("bias_correction", c.bias_correction, "Correct the moments for their start at zero, as Adam does.");
  describe_layerwise(v, c);
  v.field("weight_decay", c.weight_decay, "Weight of the parameter in its update, before the ratio of norms.",
          at_least(0));
  describe_common(v, c.common);
}

/// The type of Muon's iterations.
enum class MuonType { bfloat16, float32 };
template <>
struct Choices<MuonType> {
  static constexpr std::array all = {Choice<MuonType>{"bfloat16", MuonType::bfloat16},
                                     Choice<MuonType>{"float32", MuonType::float32}};
};
/// How Muon's learning rate depends on the shape of a matrix.
enum class MuonRate { original, match_rms_adamw };
template <>
struct Choices<MuonRate> {
  static constexpr std::array all = {Choice<MuonRate>{"original", MuonRate::original},
                                     Choice<MuonRate>{"match_rms_adamw", MuonRate::match_rms_adamw}};
};

struct MuonConfig {
  static constexpr std::string_view kName = "muon";
  double lr = 0.001, momentum = 0.95, weight_decay = 0.0, eps = 1e-7;
  bool nesterov = true;
  std::array<double, 3> ns_coefficients{3.4445, -4.775, 2.0315};
  int64_t ns_steps = 5;
  MuonType ns_dtype = MuonType::bfloat16;
  MuonRate adjust_lr_fn = MuonRate::original;
  std::vector<std::string> adamw_for;
  std::optional<double> adamw_lr;
  std::array<double, 2> adamw_betas{0.9, 0.999};
  double adamw_eps = 1e-8;
  CommonOptimizerConfig common = {};
};
template <class V>
void describe(V& v, MuonConfig& c) {
  describe_lr(v, c);
  describe_momentum(v, c);
  describe_nesterov(v, c);
  v.field("weight_decay", c.weight_decay, "Decay applied to the weight itself.", at_least(0));
  v.field("ns_coefficients", c.ns_coefficients, "Of x, x³ and x⁵ in a Newton-Schulz iteration.");
  v.field("ns_steps", c.ns_steps, "Newton-Schulz iterations of an update.", in_range(1, 99));
  v.field("ns_dtype", c.ns_dtype, "The type of these iterations.");
  v.field("eps", c.eps, "Least norm that a matrix is divided by before them.", above(0));
  v.field("adjust_lr_fn", c.adjust_lr_fn,
          "What lr is multiplied by for a matrix of r rows and c columns: original: √max(1, r ÷ c); match_rms_adamw: "
          "0.2 √max(r, c), so that lr and weight_decay can be those of adamw.");
  v.field("adamw_for", c.adamw_for,
          "Matrices that AdamW updates, in words as in no_decay: usually the last layer. AdamW always updates "
          "embeddings and what is not a matrix.");
  v.field("adamw_lr", c.adamw_lr, "AdamW's learning rate; null: lr.", at_least(0));
  v.field("adamw_betas", c.adamw_betas, "AdamW's betas.", half_open(0.0, 1.0));
  v.field("adamw_eps", c.adamw_eps, "AdamW's eps.", at_least(0));
  describe_common(v, c.common);
}

using OptimizerConfig = std::variant<SgdConfig, AdamConfig, AdamWConfig, NAdamConfig, RmspropConfig, AdagradConfig,
                                     LionConfig, LarsConfig, LambConfig, MuonConfig>;
inline const CommonOptimizerConfig& common_of(const OptimizerConfig& config) {
  return std::visit([](const auto& c) -> const CommonOptimizerConfig& { return c.common; }, config);
}
template <class V>
void describe(V& v, OptimizerConfig& c) {
  v.variant("name", c, "The update rule, as torch.optim computes it, or timm for lion, lars and lamb.");
}

}  // namespace trainopt
