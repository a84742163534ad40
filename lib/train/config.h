// The sections `train`, `evaluation`, `checkpoint`, `bench`, `watchdog`, `debug`, `profiler` and `average` of a recipe.
#pragma once

#include "config/describe.h"
#include "data/files/data_paths.h"
#include "data/transform_config.h"
#include "train/optimizer/optimizer_config.h"
#include "train/optimizer/schedule_config.h"

namespace trainopt {

enum class OnNonfinite { abort, skip, rerun };
template <>
struct Choices<OnNonfinite> {
  static constexpr std::array all = {Choice<OnNonfinite>{"abort", OnNonfinite::abort},
                                     Choice<OnNonfinite>{"skip", OnNonfinite::skip},
                                     Choice<OnNonfinite>{"rerun", OnNonfinite::rerun}};
};

enum class ShortBatch { error, drop, merge };
template <>
struct Choices<ShortBatch> {
  static constexpr std::array all = {Choice<ShortBatch>{"error", ShortBatch::error},
                                     Choice<ShortBatch>{"drop", ShortBatch::drop},
                                     Choice<ShortBatch>{"merge", ShortBatch::merge}};
};

/// The goal at which a run ends; at most one is set.
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
  ShortBatch short_batch = ShortBatch::error;
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
      "short_batch", c.short_batch,
      "What to do with an epoch's last batch if batch-norm would see only one value per channel in it, or a rank would "
      "have no sample: error refuses it, drop leaves it out, merge joins it to the batch before (with several ranks, "
      "all share it evenly).");
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
  std::optional<DataPaths> path;
  std::optional<std::vector<TransformConfig>> transforms;
  std::optional<int64_t> batch_size;
};
template <class V>
void describe(V& v, EvaluationConfig& c) {
  v.field("every_n_steps", c.every_n_steps, "Steps between evaluations; null: no periodic evaluation.",
          in_range(1, 1e15), alias("eval_steps"));
  v.field("at_end", c.at_end, "Evaluate after the last step.");
  v.field(
      "path", c.path,
      "Evaluation data; null: the test file in the folder of a format that has one, such as cifar10's test_batch.bin; "
      "otherwise none.");
  v.field("transforms", c.transforms,
          "Evaluation transforms; null: those of training, without random crops and flips, and with resize and "
          "center_crop instead of random_resized_crop.");
  v.field("batch_size", c.batch_size, "Evaluation batch size; null: data.batch_size.", in_range(1, 1 << 24),
          alias("per_device_eval_batch_size"));
}

struct CheckpointConfig {
  std::optional<int64_t> every_n_steps;
  bool at_end = true;
  std::optional<int64_t> keep_last = 2;
  bool background = true;
  std::string resume = "none";
  Duration grace_period{25};
};
template <class V>
void describe(V& v, CheckpointConfig& c) {
  v.field("every_n_steps", c.every_n_steps, "Steps between checkpoints; null: no periodic checkpoints.",
          in_range(1, 1e15), alias("save_steps", "save_interval"));
  v.field("at_end", c.at_end, "Save after the last step.");
  v.field("keep_last", c.keep_last,
          "Number of newest checkpoints to keep, besides the one the run resumed from; null: all.", in_range(1, 1e6),
          alias("save_total_limit"));
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

// The section `debug` of a recipe: checks that are off by default, because each slows the run down.

struct DebugConfig {
  bool find_syncs = false, anomaly = false, gradcheck = false;
  bool operator==(const DebugConfig&) const = default;
};
template <class V>
void describe(V& v, DebugConfig& c) {
  v.field("find_syncs", c.find_syncs,
          "Name every operation of one step in which the host waits for the device or copies without need. Slows that "
          "step down, and labels the units in all steps.");
  v.field("anomaly", c.anomaly,
          "Name the operation and unit in which a NaN or an infinity begins, and those whose backward failed. Makes "
          "training several times slower: the result of every operation is checked, and on a GPU the host waits for "
          "each.");
  v.field("gradcheck", c.gradcheck,
          "Before the first step, check every backward of trainopt's own that this recipe uses: its results against "
          "float64, and those against central differences. Delays the start by seconds to minutes.");
}

// The section `profiler` of a recipe: which steps are profiled, and what is recorded of them. Names and meanings are
// those of torch.profiler.

enum class ProfiledActivity { cpu, gpu };
template <>
struct Choices<ProfiledActivity> {
  static constexpr std::array all = {Choice<ProfiledActivity>{"cpu", ProfiledActivity::cpu},
                                     Choice<ProfiledActivity>{"gpu", ProfiledActivity::gpu},
                                     Choice<ProfiledActivity>{"cuda", ProfiledActivity::gpu}};  // PyTorch's word
};

struct ProfilerConfig {
  int64_t wait = 1, warmup = 1, active = 3, repeat = 1;
  std::vector<ProfiledActivity> activities{ProfiledActivity::cpu, ProfiledActivity::gpu};
  bool record_shapes = false, profile_memory = false, with_stack = false, with_flops = false, units = true;
  bool memory_snapshot = false;
};
template <class V>
void describe(V& v, ProfilerConfig& c) {
  v.field("wait", c.wait, "Steps before a recording begins.", in_range(0, 1e9));
  v.field("warmup", c.warmup, "Steps with the profiler on whose events are discarded: the first ones are slower.",
          in_range(0, 1e9));
  v.field("active", c.active, "Steps that are recorded.", in_range(1, 1e6));
  v.field("repeat", c.repeat, "How often wait, warmup and active are repeated; 0: until the run ends.",
          in_range(0, 1e9));
  v.field("activities", c.activities,
          "What is recorded. An empty list records no trace and only sets the labels, for Nsight Systems.");
  v.field("record_shapes", c.record_shapes, "Record the sizes of each operation's inputs.");
  v.field("profile_memory", c.profile_memory,
          "Record allocations and releases of memory; the loader's threads are then not recorded.");
  v.field("with_stack", c.with_stack,
          "Record where each operation was called: the path of labels and units around it. Needs units.");
  v.field("with_flops", c.with_flops, "Record what the FLOPs are computed from, which are the shapes.");
  v.field("memory_snapshot", c.memory_snapshot,
          "Record allocations and releases to the end of the run: writes memory/rank0.pickle for PyTorch's memory "
          "viewer, and names leaks and spikes.");
  v.field("units", c.units, "Label the forward and backward of each of the model's units.");
}

// The section `average` of a recipe.

struct NoAverageConfig {
  static constexpr std::string_view kName = "none";
};
template <class V>
void describe(V&, NoAverageConfig&) {}

struct EmaConfig {
  static constexpr std::string_view kName = "ema";
  double decay = 0.999;
};
template <class V>
void describe(V& v, EmaConfig& c) {
  v.field("decay", c.decay, "Part of the average that each step keeps.", half_open(0.0, 1.0));
}

struct SwaConfig {
  static constexpr std::string_view kName = "swa";
  std::optional<int64_t> start_step;
  int64_t every_n_steps = 1;
};
template <class V>
void describe(V& v, SwaConfig& c) {
  v.field("start_step", c.start_step, "First step that counts; null: after three quarters of the run's steps.",
          in_range(1, 1e15), alias("swa_start"));
  v.field("every_n_steps", c.every_n_steps, "Steps between those that count.", in_range(1, 1e15));
}

using AverageConfig = std::variant<NoAverageConfig, EmaConfig, SwaConfig>;
template <class V>
void describe(V& v, AverageConfig& c) {
  v.variant("name", c,
            "An average of the weights, evaluated and saved beside them: ema, with weights that fall exponentially, or "
            "swa, in which all count alike (Izmailov et al. 2018).");
}

}  // namespace trainopt
