// A plan: a recipe made concrete for one machine. It contains facts, the slots with what fills them and why, and every
// switch with its outcome. Printing it allocates nothing on the device.
#pragma once

#include "base/json.h"
#include "comm/config.h"
#include "data/batch.h"
#include "data/batch_source.h"
#include "data/loader.h"
#include "device/backend_settings.h"
#include "device/process.h"
#include "metrics/config.h"
#include "model/config.h"
#include "model/model.h"
#include "model/task.h"
#include "train/config.h"
#include "train/machine.h"
#include "train/memory_forecast.h"
#include "train/observe/observed_step.h"
#include "train/optimizer/optimizer.h"
#include "train/optimizer/schedule.h"
#include "train/optimizer/weight_average.h"
#include "train/operation_slots.h"
#include "train/parameter_store.h"
#include "train/precision.h"
#include "train/ranks.h"
#include "train/receipt.h"
#include "train/slot.h"

namespace trainopt {

Json to_json(const DataIdentity& identity);
/// Inverse of to_json().
DataIdentity identity_from(const Json& json);

struct ModelPlan {
  ModelConfig config;
  InputShape input;                            ///< shape of one sample
  ModelTask task = ModelTask::classification;  ///< never `automatic`
  LayerCounts layers;
  int64_t parameters = 0;                  ///< number of values
  double flops_per_sample = 0;             ///< forward pass; a multiply-add counts as two
  std::set<std::string> in_bfloat16 = {};  ///< names of the parameters held as bfloat16; the others are float32
  int64_t bfloat16_parameters = 0;         ///< number of their values

  /// Its name in a sentence: "resnet18", "program".
  std::string_view noun() const { return layers.imported ? "program" : word_of(config.name); }

  /// Why a switch has nothing to act on: the network has no layers of the kind, or none that was found in a program.
  std::string has_no(std::string_view layers_of_kind) const {
    return layers.imported
               ? fmt::format("no {} of the program can be replaced; trainopt model show says why", layers_of_kind)
               : fmt::format("the {} has no {}", noun(), layers_of_kind);
  }

  /// Builds the network, or the units of it that a process holds.
  decltype(&make_model) make = make_model;
  /// The network on the meta device.
  Model shapes() const { return make(config, input, at::kMeta, /*seed=*/0, {}); }
  /// Sets the facts that the network on any device shows of itself.
  void describe(const Model& network);

  /// Forward and backward of so many samples. Backward multiplies twice as much, and what it computes again does not
  /// count.
  double training_flops(int64_t samples) const { return 3 * flops_per_sample * static_cast<double>(samples); }
  int64_t parameter_bytes() const { return 4 * parameters - 2 * bfloat16_parameters; }
};

struct DataPlan : DataSpec {
  std::function<std::unique_ptr<BatchSource>(std::unique_ptr<BatchSource>)>
      wrap_batches;  ///< wraps the batch source; empty: no wrapper

  /// Throws UserError(data) naming the first difference between this data and a checkpoint's.
  void require_identity(const DataIdentity& stored) const;
  InputShape input_shape() const;  ///< one sample's shape, as the model sees it
};

struct EvaluationPlan {
  std::optional<int64_t> every_n_steps;
  bool at_end = true;
  DataPlan data;           ///< every sample, in index order
  std::string trained_on;  ///< what of the data is trained on (data/files/overlap.h); empty: nothing
};

struct Plan {
  Plan(Machine machine, at::Device device, OptimizerConfig optimizer_config);
  // Defaulted in plan.cpp: inlined, they are thousands of instructions wherever a plan is passed on.
  Plan(const Plan&);
  Plan(Plan&&) noexcept;
  Plan& operator=(const Plan&);
  Plan& operator=(Plan&&) noexcept;
  ~Plan();

  // Facts
  std::string name;
  Machine machine;
  RankPosition position;  ///< this process's position among the job's ranks
  StagePlan stages;       ///< the part of the model that this process has
  at::Device device;
  std::string device_reason;
  uint64_t seed = 0;
  ModelPlan model;
  DataPlan data;
  std::optional<EvaluationPlan> evaluation;
  LoaderSettings loader;       ///< settings for training and evaluation
  TensorFormat tensor_format;  ///< format for model, training and evaluation
  TrainConfig train;
  OptimizerConfig optimizer_config;
  std::map<std::string, ParameterSettings> parameter_settings;  ///< the optimizer's settings by parameter name
  double optimizer_states = 0;  ///< values that the optimizer keeps for each of the model's, on average
  SchedulerConfig scheduler;
  AverageConfig average_config;
  std::optional<int64_t> steps;  ///< this run's steps, unless something ends it sooner; null: limited only by time
  int64_t schedule_steps = 0;    ///< step at which a schedule with an end ends
  ParallelConfig parallel;
  CheckpointConfig checkpoint;
  LoggingConfig logging;
  TelemetryConfig telemetry;
  BenchConfig bench;
  BackendSettings backend;
  ProcessSettings process;
  ClearGradients clear_gradients = ClearGradients::zero;
  bool detects_nonfinite = false;        ///< every step, although train.on_nonfinite is abort
  bool replays_steps = false;            ///< steps are recorded once and replayed: nothing within them can be timed
  bool records_traces = false;           ///< libtorch's profiler records some steps
  bool memory_snapshot = false;          ///< the memory's history is recorded to the end and written
  std::optional<MemoryForecast> memory;  ///< a step's forecast; null: none was made
  PeakSpeed peak;                        ///< peak of this job's devices
  int64_t still_steps = 0;               ///< the first steps have a learning rate of 0
  bool learning_rate_on_device = false;  ///< every update reads it there, without the host
  bool rewinds_random_state = false;     ///< a step sets the model's generator back, which only the host can

  /// Whether a step whose values are not finite changes nothing, which takes copies of what it would change.
  bool undoes_steps() const { return detects_nonfinite || train.on_nonfinite != OnNonfinite::abort; }

  bool evaluates_after(int64_t step) const {
    return evaluation && evaluation->every_n_steps && step % *evaluation->every_n_steps == 0;
  }

  /// Throws UserError if the schedule does not fit into its length.
  Schedule schedule() const;
  /// Builds the model on `device` in the plan's format, with plain operations. Initial weights are drawn from `seed`,
  /// or read from config.weights unless a checkpoint's weights follow (`is_resumed`).
  std::unique_ptr<Model> build_model(bool is_resumed = false) const;
  /// Opens the batches of `from` (the training or evaluation data) on `device`. `refused`: bad samples found before.
  std::unique_ptr<BatchSource> open_batches(const DataPlan& from, const StepRange& range = {},
                                            std::vector<RefusedSample> refused = {}) const;

  /// Called in order with each model that is built, before any other part wraps its units.
  std::vector<std::function<void(Model&)>> wrap_model;

  OperationSlots operations;

  // Slots of the trainer
  Slot<Task> task;
  Slot<Precision> precision;
  Slot<ParameterStore> parameters;
  Slot<Optimizer> optimizer;
  Slot<WeightRounding> rounding;  ///< used by `optimizer`
  Slot<StepRunner> runner;
  Slot<WeightAverage> average;
  Slot<StepProfiler> profiler;

  // What decided the slots
  std::vector<PlannedSwitch> switches;
  std::vector<std::string> notes;

  /// What parts add to summary.json: a key, and a function that returns its value so far.
  std::vector<std::pair<std::string, std::function<Json()>>> reports;
};

}  // namespace trainopt
