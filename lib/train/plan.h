// A plan: a recipe made concrete for one machine. Facts, the slots with what fills them and why, and every switch with
// its outcome. Printing it allocates nothing on the device.
#pragma once

#include "base/json.h"
#include "comm/config.h"
#include "data/batch_source.h"
#include "data/config.h"
#include "data/dataset.h"
#include "device/backend_settings.h"
#include "device/process.h"
#include "metrics/config.h"
#include "model/config.h"
#include "model/model.h"
#include "model/task.h"
#include "train/build_context.h"
#include "train/config.h"
#include "train/machine.h"
#include "train/optimizer.h"
#include "train/parameter_store.h"
#include "train/precision.h"
#include "train/receipt.h"
#include "train/slot.h"
#include "train/step_runner.h"
#include "train/weight_average.h"

namespace trainopt {

Json to_json(const DataIdentity& identity);
Json to_json(const RefusedSample& sample);
Json to_json(const std::vector<RefusedSample>& samples);
// Of what to_json() gave.
DataIdentity identity_from(const Json& json);
RefusedSample refused_sample_from(const Json& json);

struct ModelPlan {
  ModelConfig config;
  InputShape input;  ///< of one sample
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;
  std::shared_ptr<const BlockOperations> operations;      ///< null: the plain ones
  std::shared_ptr<const ConvolutionKernel> convolutions;  ///< null: libtorch's alone
  int64_t parameters = 0;                                 ///< how many numbers
  double flops_per_sample = 0;                            ///< forward; a multiply-add counts two

  /// Allocates on the device; initial weights from `seed` or from config.weights.
  std::unique_ptr<Model> build(at::Device device, uint64_t seed) const;
};

struct DataPlan {
  DataConfig config;                       ///< as it takes effect: switches without effect are off here
  std::shared_ptr<const Dataset> dataset;  ///< null for synthetic
  BatchesOptions options;
  std::function<std::unique_ptr<BatchSource>(std::unique_ptr<BatchSource>)>
      around;  ///< goes around what open() makes; empty: nothing does

  int64_t samples() const;  ///< in an epoch
  /// What must be the same for a run to resume.
  DataIdentity identity() const;
  /// Throws UserError(data) naming what differs between this data and that of a checkpoint.
  void require_identity(const DataIdentity& stored) const;
  InputShape image() const;  ///< as the model sees it
  BatchSchedule schedule() const { return make_schedule(config, samples(), options); }
  /// From step `first_step`, counted from 0, on; `refused`: bad samples met before.
  std::unique_ptr<BatchSource> open(at::Device device, std::optional<int64_t> end_step, int64_t first_step = 0,
                                    std::vector<RefusedSample> refused = {}) const;
};

struct EvaluationPlan {
  std::optional<int64_t> every_n_steps;
  bool at_end = true;
  DataPlan data;  ///< in index order, every sample
};

struct Plan {
  Plan(Machine machine, at::Device device, OptimizerConfig optimizer_config);

  // Facts
  std::string name;
  Machine machine;
  at::Device device;
  std::string device_reason;
  uint64_t seed = 0;
  ModelPlan model;
  DataPlan data;
  std::optional<EvaluationPlan> evaluation;
  TrainConfig train;
  OptimizerConfig optimizer_config;
  SchedulerConfig scheduler;
  std::optional<int64_t> steps;  ///< of this run, unless something ends it sooner; null: only time does
  int64_t schedule_steps = 0;    ///< where linear and cosine reach 0
  ParallelConfig parallel;
  CheckpointConfig checkpoint;
  LoggingConfig logging;
  TelemetryConfig telemetry;
  BenchConfig bench;
  BackendSettings backend;
  ProcessSettings process;
  ClearGradients clear_gradients = ClearGradients::zero;
  std::optional<at::ScalarType> autocast_type;  ///< what forward casts to; null: it does not
  bool learning_rate_on_device = false;         ///< where every update reads it, without asking the host

  // Slots
  Slot<Task> task;
  Slot<Precision> precision;
  Slot<ParameterStore> parameters;
  Slot<Optimizer> optimizer;
  Slot<StepRunner> runner;
  Slot<WeightAverage> average;

  // Who decided
  std::vector<PlannedSwitch> switches;
  std::vector<std::string> notes;
};

}  // namespace trainopt
