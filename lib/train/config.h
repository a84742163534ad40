// The sections `train`, `optimizer`, `scheduler`, `evaluation`, `checkpoint`, `bench` and `watchdog` of a recipe.
#pragma once

#include "config/describe.h"
#include "data/transform_config.h"

namespace trainopt {

enum class OnNonfinite { abort, skip, rerun };
template <>
struct Choices<OnNonfinite> {
  static constexpr std::array all = {Choice<OnNonfinite>{"abort", OnNonfinite::abort},
                                     Choice<OnNonfinite>{"skip", OnNonfinite::skip},
                                     Choice<OnNonfinite>{"rerun", OnNonfinite::rerun}};
};

struct TrainConfig {
  std::optional<int64_t> epochs, max_steps;
  std::optional<Duration> max_time;
  std::optional<int64_t> gradient_accumulation_steps;  ///< null: 1, or derived from global_batch_size
  std::optional<double> max_grad_norm;
  double label_smoothing = 0.0;
  OnNonfinite on_nonfinite = OnNonfinite::abort;
  int64_t max_skipped_steps = 10;
};
template <class V>
void describe(V& v, TrainConfig& c) {
  v.field("epochs", c.epochs,
          "Passes over the data. The first limit reached ends the run; without any limit it is one epoch.",
          in_range(1, 1e9), alias("num_train_epochs", "max_epochs"));
  v.field("max_steps", c.max_steps, "Maximum number of steps.", in_range(1, 1e15),
          alias("steps", "max_iters", "train_iters"));
  v.field("max_time", c.max_time, "Maximum training time, such as 90s, 15m or 2h.", above(0));
  v.field("gradient_accumulation_steps", c.gradient_accumulation_steps,
          "Micro-batches per update; null: 1, or derived from data.global_batch_size.", in_range(1, 1 << 24),
          alias("accumulate_grad_batches", "grad_accum_steps"));
  v.field("max_grad_norm", c.max_grad_norm, "Scale gradients down to this global norm; null: no clipping.", above(0),
          alias("gradient_clip_val", "gradient_clipping", "grad_clip", "clip_grad"));
  v.field("label_smoothing", c.label_smoothing, "Fraction of the target spread over all classes.", in_range(0.0, 1.0));
  v.field(
      "on_nonfinite", c.on_nonfinite,
      "On a non-finite loss or gradient: abort ends the run, skip drops the step, rerun repeats it to tell a hardware "
      "fault from bad data.");
  v.field("max_skipped_steps", c.max_skipped_steps, "Steps that on_nonfinite: skip may skip before the run ends.",
          at_least(0));
}

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
  LrScaling lr_scaling = LrScaling::none;
  std::optional<int64_t> reference_batch;
};
template <class V>
void describe_common(V& v, CommonOptimizerConfig& c) {
  v.field("no_decay", c.no_decay,
          "Parameters without weight decay: norm (weights and biases of batch-norm and layer norm), bias, embedding, "
          "the name of a unit, or a parameter's name or its beginning up to a dot.",
          any(), alias("no_weight_decay"));
  v.field("lr_scaling", c.lr_scaling,
          "Multiply lr by (samples per step ÷ reference_batch): linear, as Goyal et al. (2017) do with SGD, or by its "
          "square root (sqrt), as is usual with Adam; none: use lr as it is.");
  v.field("reference_batch", c.reference_batch, "lr_scaling: samples per step at which lr was chosen.",
          in_range(1, 1e12));
}

struct SgdConfig {
  static constexpr std::string_view kName = "sgd";
  double lr = 0.001, momentum = 0.9, weight_decay = 0.0;
  bool nesterov = false;
  CommonOptimizerConfig common = {};
};
template <class V>
void describe(V& v, SgdConfig& c) {
  v.field("lr", c.lr, "Learning rate.", at_least(0), alias("learning_rate"));
  v.field("momentum", c.momentum, "Momentum factor; 0: no momentum.", half_open(0.0, 1.0));
  v.field("weight_decay", c.weight_decay, "L2 penalty added to the gradient.", at_least(0));
  v.field("nesterov", c.nesterov, "Use Nesterov momentum; needs momentum above 0.");
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
  v.field("lr", c.lr, "Learning rate.", at_least(0), alias("learning_rate"));
  v.field("betas", c.betas, "Decay rates beta1, beta2 of the first and second moment.", half_open(0.0, 1.0));
  v.field("eps", c.eps, "Added to the square root of the second moment.", at_least(0));
  v.field("weight_decay", c.weight_decay,
          "adam: L2 penalty added to the gradient; adamw: decay applied to the weight itself.", at_least(0));
  describe_common(v, c.common);
}
using OptimizerConfig = std::variant<SgdConfig, AdamConfig, AdamWConfig>;
inline const CommonOptimizerConfig& common_of(const OptimizerConfig& config) {
  return std::visit([](const auto& c) -> const CommonOptimizerConfig& { return c.common; }, config);
}
template <class V>
void describe(V& v, OptimizerConfig& c) {
  v.variant("name", c, "The update rule, as torch.optim computes it.");
}

enum class ScheduleKind { constant, linear, cosine };
template <>
struct Choices<ScheduleKind> {
  static constexpr std::array all = {Choice<ScheduleKind>{"constant", ScheduleKind::constant},
                                     Choice<ScheduleKind>{"linear", ScheduleKind::linear},
                                     Choice<ScheduleKind>{"cosine", ScheduleKind::cosine}};
};
struct SchedulerConfig {
  ScheduleKind name = ScheduleKind::constant;
  int64_t warmup_steps = 0;
  std::optional<int64_t> total_steps;
};
template <class V>
void describe(V& v, SchedulerConfig& c) {
  v.field("name", c.name, "Learning-rate schedule after warm-up.", any(), alias("lr_scheduler_type"));
  v.field("warmup_steps", c.warmup_steps, "Steps over which the learning rate rises from 0.", in_range(0, 1e15),
          alias("num_warmup_steps"));
  v.field("total_steps", c.total_steps, "Step at which linear and cosine reach 0; null: from max_steps or epochs.",
          in_range(1, 1e15), alias("num_training_steps"));
}

struct EvaluationConfig {
  std::optional<int64_t> every_n_steps;
  bool at_end = true;
  std::optional<std::string> path;
  std::optional<std::vector<TransformConfig>> transforms;
  std::optional<int64_t> batch_size;
};
template <class V>
void describe(V& v, EvaluationConfig& c) {
  v.field("every_n_steps", c.every_n_steps, "Steps between evaluations; null: no periodic evaluation.",
          in_range(1, 1e15), alias("eval_steps"));
  v.field("at_end", c.at_end, "Evaluate after the last step.");
  v.field("path", c.path, "Evaluation data; null: test_batch.bin for cifar10, otherwise none.");
  v.field("transforms", c.transforms,
          "Evaluation transforms; null: those of training, without random crops and flips, and with resize and "
          "center_crop instead of random_resized_crop.");
  v.field("batch_size", c.batch_size, "Evaluation batch size; null: data.batch_size.", in_range(1, 1 << 24),
          alias("per_device_eval_batch_size"));
}

struct CheckpointConfig {
  std::optional<int64_t> every_n_steps;
  bool at_end = true;
  int64_t keep_last = 2;
  bool background = true;
  std::string resume = "none";
  Duration grace_period{25};
};
template <class V>
void describe(V& v, CheckpointConfig& c) {
  v.field("every_n_steps", c.every_n_steps, "Steps between checkpoints; null: no periodic checkpoints.",
          in_range(1, 1e15), alias("save_steps", "save_interval"));
  v.field("at_end", c.at_end, "Save after the last step.");
  v.field("keep_last", c.keep_last, "Number of newest checkpoints to keep, besides the one the run resumed from.",
          in_range(1, 1e6), alias("save_total_limit"));
  v.field("background", c.background, "Write in the background while training continues.");
  v.field("resume", c.resume, "none, auto (the newest complete checkpoint of run_dir), or a path.", any(),
          alias("resume_from_checkpoint"));
  v.field("grace_period", c.grace_period,
          "Time for a stopped run to finish its step and save before it ends anyway. Schedulers often kill after 30s.",
          above(0));
}

struct BenchConfig {
  int64_t warmup_steps = 10;
  std::optional<double> price_per_hour;
};
template <class V>
void describe(V& v, BenchConfig& c) {
  v.field("warmup_steps", c.warmup_steps,
          "First steps excluded from the summary; half of all steps if the run has fewer than twice as many.",
          at_least(0));
  v.field(
      "price_per_hour", c.price_per_hour,
      "What an hour of all machines of this job costs, in any currency; results then include the price of a million "
      "samples.",
      Bounds{.low = 0, .high = 1e9, .low_included = false});
}

struct WatchdogConfig {
  Duration timeout{1800};
};
template <class V>
void describe(V& v, WatchdogConfig& c) {
  v.field("timeout", c.timeout, "The run is ended after this long without progress.", above(0));
}

}  // namespace trainopt
