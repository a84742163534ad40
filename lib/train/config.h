// The sections `train`, `optimizer`, `scheduler`, `evaluation`, `checkpoint`, `bench` and `watchdog` of a recipe.
#pragma once

#include "config/describe.h"
#include "data/transform_config.h"
#include "train/optimizer_config.h"
#include "train/schedule_config.h"

namespace trainopt {

enum class OnNonfinite { abort, skip, rerun };
template <>
struct Choices<OnNonfinite> {
  static constexpr std::array all = {Choice<OnNonfinite>{"abort", OnNonfinite::abort},
                                     Choice<OnNonfinite>{"skip", OnNonfinite::skip},
                                     Choice<OnNonfinite>{"rerun", OnNonfinite::rerun}};
};

/// At most one of them.
struct TargetConfig {
  std::optional<double> top1_pct, loss, perplexity;
};
template <class V>
void describe(V& v, TargetConfig& c) {
  v.field("top1_pct", c.top1_pct, "End once an evaluation finds at least this share of samples classified right.",
          in_range(0, 100));
  v.field("loss", c.loss, "End once an evaluation finds at most this loss.", at_least(0));
  v.field("perplexity", c.perplexity, "End once an evaluation finds at most this perplexity.", at_least(1));
}

struct TrainConfig {
  std::optional<int64_t> epochs, max_steps;
  std::optional<Duration> max_time;
  std::optional<int64_t> gradient_accumulation_steps;  ///< null: 1, or derived from global_batch_size
  std::optional<double> max_grad_norm, clip_value;
  double label_smoothing = 0.0;
  OnNonfinite on_nonfinite = OnNonfinite::abort;
  int64_t max_skipped_steps = 10;
  TargetConfig target;
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
  v.field("clip_value", c.clip_value, "Clamp every value of the gradients to ± this; null: no clamping.", above(0),
          alias("clip_grad_value"));
  v.field("label_smoothing", c.label_smoothing, "Fraction of the target spread over all classes.", in_range(0.0, 1.0));
  v.field(
      "on_nonfinite", c.on_nonfinite,
      "On a non-finite loss or gradient: abort ends the run, skip drops the step, rerun repeats it to tell a hardware "
      "fault from bad data.");
  v.field("max_skipped_steps", c.max_skipped_steps, "Steps that on_nonfinite: skip may skip before the run ends.",
          at_least(0));
  v.section("target", c.target, "What the run is to learn; it ends at the evaluation that finds it.");
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
