// A recipe: what the user asks for. Plain structs; each section's options are declared next to the code that uses them.
#pragma once

#include "comm/config.h"
#include "config/outline.h"
#include "data/config.h"
#include "metrics/config.h"
#include "model/config.h"
#include "optimizations/config.h"
#include "train/config.h"

namespace trainopt {

struct Recipe {
  std::string name = "resnet18";
  std::string output_dir = "runs";
  std::optional<std::string> run_dir;
  int64_t seed = 0;
  bool deterministic = false;
  bool strict = false;
  std::string device = "auto";
  std::optional<int64_t> num_threads;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  AverageConfig average;
  OptimizationsConfig optimizations;
  ParallelConfig parallel;
  EvaluationConfig evaluation;
  CheckpointConfig checkpoint;
  LoggingConfig logging;
  TelemetryConfig telemetry;
  WatchdogConfig watchdog;
  BenchConfig bench;
  Switch<ProfilerConfig> profiler;
  DebugConfig debug;

  // Defaulted in recipe.cpp: inlined, they are thousands of instructions wherever a recipe is passed on.
  Recipe();
  Recipe(const Recipe&);
  Recipe(Recipe&&) noexcept;
  Recipe& operator=(const Recipe&);
  Recipe& operator=(Recipe&&) noexcept;
  ~Recipe();
};

template <class V>
void describe(V& v, Recipe& c) {
  v.field("name", c.name, "Prefix of the run directory's name.", any(), alias("run_name"));
  v.field("output_dir", c.output_dir, "Where run directories are created.", any(),
          alias("default_root_dir", "save_folder"));
  v.field("run_dir", c.run_dir,
          "Run directory, new or empty unless the run resumes in it; null: a new one in output_dir.");
  v.field("seed", c.seed, "Random seed of sample order, augmentation, fake data, initial weights and dropout.",
          in_range(0, 9e15));
  v.field("deterministic", c.deterministic, "Use only operations that give the same bits every time.", any(),
          alias("full_determinism"));
  v.field("strict", c.strict, "Refuse switches that have no effect on this machine.");
  v.field("device", c.device, "auto, cpu, cuda or cuda:N.");
  v.field("num_threads", c.num_threads, "CPU compute threads; null: this rank's share of the allowed cores.",
          in_range(1, 4096));
  v.section("model", c.model, "The network.");
  v.section("data", c.data, "Data set and loader.");
  v.section("train", c.train, "Training length and behaviour.");
  v.section("optimizer", c.optimizer, "The update rule.");
  v.section("scheduler", c.scheduler, "The learning-rate schedule.");
  v.section("average", c.average, "An average of the weights over time.");
  v.section("optimizations", c.optimizations, "The optimization switches.");
  v.section("parallel", c.parallel, "Training on several ranks.");
  v.section("evaluation", c.evaluation, "Accuracy on held-out data.");
  v.section("checkpoint", c.checkpoint, "Saving and resuming.");
  v.section("logging", c.logging, "Records, progress and tensor dumps.");
  v.section("telemetry", c.telemetry, "The thread that samples the hardware.");
  v.section("watchdog", c.watchdog, "Ends a run that hangs.");
  v.section("bench", c.bench, "Which steps the summary counts, and the price of the machines.");
  v.toggle("profiler", c.profiler, "Record traces of a few steps with libtorch's profiler.");
  v.section("debug", c.debug, "Checks on demand. Each slows the run down.");
}

/// Instantiated once, in recipe.cpp: it contains the forms of all options.
extern template Outline outline_of(Recipe& config);

}  // namespace trainopt
