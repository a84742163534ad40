// A recipe: what is wanted. Plain structs; each section's options are declared beside the code that uses them.
#pragma once

#include "comm/config.h"
#include "config/describe.h"
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
  OptimizationsConfig optimizations;
  ParallelConfig parallel;
  EvaluationConfig evaluation;
  CheckpointConfig checkpoint;
  LoggingConfig logging;
  TelemetryConfig telemetry;
  WatchdogConfig watchdog;
  BenchConfig bench;
};

template <class V>
void describe(V& v, Recipe& c) {
  v.field("name", c.name, "Prefix of the run directory.", any(), alias("run_name"));
  v.field("output_dir", c.output_dir, "Where run directories are made.", any(),
          alias("default_root_dir", "save_folder"));
  v.field("run_dir", c.run_dir, "Exactly this run directory.");
  v.field("seed", c.seed, "Of sample order, augmentation, fake data, initial weights and dropout.", in_range(0, 9e15));
  v.field("deterministic", c.deterministic, "Only operations that give the same bits each time.", any(),
          alias("full_determinism"));
  v.field("strict", c.strict, "A switch without effect on this machine is an error.");
  v.field("device", c.device, "auto, cpu, cuda or cuda:N.");
  v.field("num_threads", c.num_threads, "CPU threads for the maths; null: this rank's share of the allowed cores.",
          in_range(1, 4096));
  v.section("model", c.model, "The network.");
  v.section("data", c.data, "The data and the loader.");
  v.section("train", c.train, "How long and how.");
  v.section("optimizer", c.optimizer, "The update rule.");
  v.section("scheduler", c.scheduler, "The learning rate over time.");
  v.section("optimizations", c.optimizations, "The switches.");
  v.section("parallel", c.parallel, "Several ranks.");
  v.section("evaluation", c.evaluation, "Accuracy on held-out data.");
  v.section("checkpoint", c.checkpoint, "Saving and resuming.");
  v.section("logging", c.logging, "What is written where.");
  v.section("telemetry", c.telemetry, "The thread that watches the hardware.");
  v.section("watchdog", c.watchdog, "Ends a run that hangs.");
  v.section("bench", c.bench, "What the summary counts.");
}

}  // namespace trainopt
