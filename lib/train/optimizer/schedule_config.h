// The section `scheduler` of a recipe. Parameters have the names that torch.optim.lr_scheduler and Hugging Face's
// transformers give them, in lower case. Each schedule begins after the warm-up; by epochs, it begins with the run.
#pragma once

#include "config/describe.h"

namespace trainopt {

struct ConstantSchedule {
  static constexpr std::string_view kName = "constant";
};
template <class V>
void describe(V&, ConstantSchedule&) {}

/// Where a schedule with an end reaches it.
struct ScheduleEnd {
  std::optional<int64_t> total_steps;
};
template <class V>
void describe_end(V& v, ScheduleEnd& c) {
  v.field("total_steps", c.total_steps, "Where the schedule ends; null: at train.max_steps or train.epochs.",
          in_range(1, 1e15), alias("num_training_steps", "t_max", "total_iters"));
}

struct LinearSchedule {
  static constexpr std::string_view kName = "linear";
  ScheduleEnd end = {};
};
template <class V>
void describe(V& v, LinearSchedule& c) {
  describe_end(v, c.end);
}

struct CosineSchedule {
  static constexpr std::string_view kName = "cosine";
  double eta_min = 0;
  ScheduleEnd end = {};
};
template <class V>
void describe(V& v, CosineSchedule& c) {
  v.field("eta_min", c.eta_min, "Lowest learning rate.", at_least(0), alias("min_lr"));
  describe_end(v, c.end);
}

struct PolynomialSchedule {
  static constexpr std::string_view kName = "polynomial";
  double power = 1;
  ScheduleEnd end = {};
};
template <class V>
void describe(V& v, PolynomialSchedule& c) {
  v.field("power", c.power, "Exponent of the part of the schedule that is left.", above(0));
  describe_end(v, c.end);
}

/// Momentum that falls while the rate rises, and rises while it falls.
struct CycledMomentum {
  bool cycle_momentum = true;
  double base_momentum, max_momentum;
};
template <class V>
void describe_cycled_momentum(V& v, CycledMomentum& c) {
  v.field("cycle_momentum", c.cycle_momentum,
          "Let the momentum (sgd) or beta1 (adam, adamw) move against the learning rate.");
  v.field("base_momentum", c.base_momentum, "Momentum at the highest learning rate.", half_open(0.0, 1.0));
  v.field("max_momentum", c.max_momentum, "Momentum at the lowest learning rate.", half_open(0.0, 1.0));
}

enum class AnnealStrategy { cos, linear };
template <>
struct Choices<AnnealStrategy> {
  static constexpr std::array all = {Choice<AnnealStrategy>{"cos", AnnealStrategy::cos},
                                     Choice<AnnealStrategy>{"linear", AnnealStrategy::linear}};
};

struct OneCycleSchedule {
  static constexpr std::string_view kName = "onecycle";
  std::optional<double> max_lr;
  double pct_start = 0.3, div_factor = 25, final_div_factor = 1e4;
  AnnealStrategy anneal_strategy = AnnealStrategy::cos;
  bool three_phase = false;
  CycledMomentum momentum{.base_momentum = 0.85, .max_momentum = 0.95};
  ScheduleEnd end = {};
};
template <class V>
void describe(V& v, OneCycleSchedule& c) {
  v.field("max_lr", c.max_lr, "Highest learning rate; null: optimizer.lr.", above(0));
  v.field("pct_start", c.pct_start, "Part of the schedule in which the rate rises.",
          Bounds{.low = 0, .high = 1, .low_included = false, .high_included = false});
  v.field("div_factor", c.div_factor, "The first rate is max_lr ÷ this.", above(0));
  v.field("final_div_factor", c.final_div_factor, "The last rate is the first one ÷ this.", above(0));
  v.field("anneal_strategy", c.anneal_strategy, "Curve of each phase.");
  v.field("three_phase", c.three_phase, "Fall as long as the rise took to the first rate, then on to the last one.");
  describe_cycled_momentum(v, c.momentum);
  describe_end(v, c.end);
}

enum class CyclicMode { triangular, triangular2, exp_range };
template <>
struct Choices<CyclicMode> {
  static constexpr std::array all = {Choice<CyclicMode>{"triangular", CyclicMode::triangular},
                                     Choice<CyclicMode>{"triangular2", CyclicMode::triangular2},
                                     Choice<CyclicMode>{"exp_range", CyclicMode::exp_range}};
};

struct CyclicSchedule {
  static constexpr std::string_view kName = "cyclic";
  std::optional<double> base_lr, max_lr;
  int64_t step_size_up = 2000;
  std::optional<int64_t> step_size_down;
  CyclicMode mode = CyclicMode::triangular;
  double gamma = 1;
  CycledMomentum momentum{.base_momentum = 0.8, .max_momentum = 0.9};
};
template <class V>
void describe(V& v, CyclicSchedule& c) {
  v.field("base_lr", c.base_lr, "Lowest learning rate; null: a quarter of max_lr.", at_least(0));
  v.field("max_lr", c.max_lr, "Highest learning rate; null: optimizer.lr.", above(0));
  v.field("step_size_up", c.step_size_up, "Length of a rise.", in_range(1, 1e15));
  v.field("step_size_down", c.step_size_down, "Length of a fall; null: step_size_up.", in_range(1, 1e15));
  v.field("mode", c.mode,
          "triangular: all cycles alike; triangular2: each half as high as the one before; exp_range: multiplied by "
          "gamma at every step.");
  v.field("gamma", c.gamma, "exp_range: factor of the height, per step.",
          Bounds{.low = 0, .high = 1, .low_included = false});
  describe_cycled_momentum(v, c.momentum);
}

struct StepSchedule {
  static constexpr std::string_view kName = "step";
  int64_t step_size = 30;
  double gamma = 0.1;
};
template <class V>
void describe(V& v, StepSchedule& c) {
  v.field("step_size", c.step_size, "Length of a period of constant rate.", in_range(1, 1e15));
  v.field("gamma", c.gamma, "Factor of the rate after each period.", above(0));
}

struct MultiStepSchedule {
  static constexpr std::string_view kName = "multistep";
  std::vector<int64_t> milestones;
  double gamma = 0.1;
};
template <class V>
void describe(V& v, MultiStepSchedule& c) {
  v.field("milestones", c.milestones, "Where the rate changes, in rising order.", in_range(1, 1e15));
  v.field("gamma", c.gamma, "Factor of the rate at each milestone.", above(0));
}

struct ExponentialSchedule {
  static constexpr std::string_view kName = "exponential";
  double gamma = 0.999;
};
template <class V>
void describe(V& v, ExponentialSchedule& c) {
  v.field("gamma", c.gamma, "Factor of the rate at every step.", above(0));
}

struct CosineRestartsSchedule {
  static constexpr std::string_view kName = "cosine_restarts";
  int64_t t_0 = 1000, t_mult = 1;
  double eta_min = 0;
};
template <class V>
void describe(V& v, CosineRestartsSchedule& c) {
  v.field("t_0", c.t_0, "Length of the first period.", in_range(1, 1e15));
  v.field("t_mult", c.t_mult, "Each period is so many times as long as the one before.", in_range(1, 1000));
  v.field("eta_min", c.eta_min, "Lowest learning rate.", at_least(0));
}

struct InverseSqrtSchedule {
  static constexpr std::string_view kName = "inverse_sqrt";
  std::optional<int64_t> timescale;
};
template <class V>
void describe(V& v, InverseSqrtSchedule& c) {
  v.field("timescale", c.timescale,
          "The rate is optimizer.lr ÷ √(1 + n ÷ timescale); null: warmup_steps, or 10000 without warm-up.",
          in_range(1, 1e15));
}

enum class DecayType { cosine, linear, one_minus_sqrt };
template <>
struct Choices<DecayType> {
  static constexpr std::array all = {Choice<DecayType>{"cosine", DecayType::cosine},
                                     Choice<DecayType>{"linear", DecayType::linear},
                                     Choice<DecayType>{"1-sqrt", DecayType::one_minus_sqrt}};
};

struct WsdSchedule {
  static constexpr std::string_view kName = "wsd";
  std::optional<int64_t> num_decay_steps;
  DecayType decay_type = DecayType::cosine;
  double min_lr_ratio = 0;
  ScheduleEnd end = {};
};
template <class V>
void describe(V& v, WsdSchedule& c) {
  v.field("num_decay_steps", c.num_decay_steps, "Length of the decay at the end; null: a tenth of the schedule.",
          in_range(1, 1e15), alias("decay_steps"));
  v.field("decay_type", c.decay_type, "Curve of the decay.");
  v.field("min_lr_ratio", c.min_lr_ratio, "Part of the rate that is left at the end.", in_range(0, 1));
  describe_end(v, c.end);
}

/// What a schedule counts.
enum class ScheduleInterval { step, epoch };
template <>
struct Choices<ScheduleInterval> {
  static constexpr std::array all = {Choice<ScheduleInterval>{"step", ScheduleInterval::step},
                                     Choice<ScheduleInterval>{"epoch", ScheduleInterval::epoch}};
};

using ScheduleKind = std::variant<ConstantSchedule, LinearSchedule, CosineSchedule, OneCycleSchedule, CyclicSchedule,
                                  StepSchedule, MultiStepSchedule, ExponentialSchedule, PolynomialSchedule,
                                  CosineRestartsSchedule, InverseSqrtSchedule, WsdSchedule>;

struct SchedulerConfig {
  ScheduleKind schedule = {};
  int64_t warmup_steps = 0;
  ScheduleInterval interval = ScheduleInterval::step;
};
template <class V>
void describe(V& v, SchedulerConfig& c) {
  v.variant("name", c.schedule, "Learning-rate schedule after warm-up.");
  v.field("warmup_steps", c.warmup_steps, "Steps over which the learning rate rises from 0.", in_range(0, 1e15),
          alias("num_warmup_steps"));
  v.field("interval", c.interval,
          "step: the schedule moves with every step; epoch: only with every epoch, and all its counts but warmup_steps "
          "are of epochs.");
}

inline std::string_view name_of(const SchedulerConfig& config) {
  return std::visit([](const auto& c) { return c.kName; }, config.schedule);
}

/// The end that this schedule has; null: it has none.
inline const ScheduleEnd* end_of(const SchedulerConfig& config) {
  return std::visit(
      [](const auto& c) -> const ScheduleEnd* {
        if constexpr (requires { c.end; }) return &c.end;
        return nullptr;
      },
      config.schedule);
}

/// How this schedule moves the momentum; null: it leaves it alone.
inline const CycledMomentum* cycled_momentum(const SchedulerConfig& config) {
  return std::visit(
      [](const auto& c) -> const CycledMomentum* {
        if constexpr (requires { c.momentum; })
          if (c.momentum.cycle_momentum) return &c.momentum;
        return nullptr;
      },
      config.schedule);
}

}  // namespace trainopt
