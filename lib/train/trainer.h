// The one loop. Built from a plan; knows no option by name. Nothing in it is global, so that two trainers can take
// turns in one process.
#pragma once

#include "base/clock.h"
#include "comm/communicator.h"
#include "data/batch_source.h"
#include "metrics/async_reader.h"
#include "train/plan.h"
#include "train/rank_agreement.h"
#include "train/run_listener.h"
#include "train/schedule.h"
#include "train/step_guard.h"

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

namespace trainopt {

class CheckpointWriter;
class ObservedStep;

/// What a run keeps beyond its own process; both may be absent.
struct Persistence {
  CheckpointWriter* checkpoints = nullptr;  ///< where those that are due go
  const ArchiveReader* resume = nullptr;    ///< the state to go on from; read in the constructor
  bool forks = false;                       ///< it is another run's: this one has none of its own yet
};

struct RunOutcome {
  int64_t steps = 0, samples = 0;       ///< of the training, also before it was resumed
  std::optional<int64_t> resumed_from;  ///< the step of the checkpoint
  double wall_s = 0;  ///< from the start of training, not of the process; the time before it was resumed included
  std::optional<double> time_to_first_step_s;  ///< from this process's start of training to the end of its first step,
                                               ///< its device work included
  int64_t skipped_steps = 0;                   ///< left out because they were not finite
  int64_t micro_split = 1;                     ///< pieces that each micro-batch is cut into since memory ran out
  int stopped_by_signal = 0;
  std::optional<EvaluationResult> evaluation;  ///< the last one
  StepTrace trace;                             ///< of the one step that was observed, and what is counted over the run
};

class Trainer {
 public:
  /// `run_dir`: where parts may write; empty for none. `stop_signal`: looked at after each step and between the
  /// batches of an evaluation, which is then dropped; not 0 ends the run there, on all ranks when it is so on one.
  /// Throws UserError: checkpoint or data if the state to resume from does not fit the plan.
  Trainer(Plan plan, std::filesystem::path run_dir, RunListener& listener, const std::atomic<int>& stop_signal,
          Persistence persistence = {}, std::shared_ptr<Communicator> communicator = make_single_communicator());

  /// To the end of the plan, or to a stop. Throws UserError: diverged or hardware as train.on_nonfinite says, memory if
  /// one sample a micro-batch is too much, and whatever parts throw; outcome() then says how far it came.
  void run();

  /// One step, for callers that let trainers take turns.
  void step();
  /// Ends a turn: waits for the device, delivers the rows that are late, and keeps the loader still until the next
  /// step().
  void pause();
  bool finished() const;

  /// The state of every part, for another run to read; the model's under torchvision's names.
  void save(ArchiveWriter& archive) const;
  /// The model's parameters and buffers, whole, on rank 0; every rank must call it.
  NamedTensors weights() const;
  /// Of the training data, those that others took the place of, and the one that ended the run.
  std::vector<RefusedSample> bad_samples() const;
  const Model& model() const { return *model_; }
  const Plan& plan() const { return plan_; }
  const RunOutcome& outcome() const { return outcome_; }

 private:
  // trainer.cpp: the loop
  struct Taken;
  at::Tensor micro_step(const Batch& micro);
  at::Tensor update_step();
  std::optional<Taken> run_micro_batches(int64_t step);
  void after_step(PendingRecord record, ObservedStep* observed);
  bool evaluation_due() const;
  void evaluate();
  void agree();
  void add_memory_and_traffic(PendingRecord& record);

  // trainer_recovery.cpp: steps that were not finite, or for which memory ran out
  void deliver(const std::vector<StepRecord>& rows);
  bool is_finite(const StepRecord& row) const;
  void handle_nonfinite(const StepRecord& row);
  void rewind_to(int64_t step);
  int64_t fewest_at_once() const;
  void recover_memory(const std::exception& cause);
  std::optional<EvaluationResult> evaluate_within_memory(
      const std::function<std::optional<EvaluationResult>()>& evaluated);

  // trainer_state.cpp: what a checkpoint holds
  void open_batches();
  void begin_resumed();
  void save_checkpoint();
  void save_model(ArchiveWriter& archive) const;
  void load(const ArchiveReader& archive);

  Plan plan_;
  RunListener& listener_;
  const std::atomic<int>& stop_signal_;
  CheckpointWriter* checkpoints_;
  std::shared_ptr<Communicator> communicator_;
  RankAgreement ranks_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Task> task_;
  std::unique_ptr<Precision> precision_;
  std::unique_ptr<ParameterStore> parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<WeightAverage> average_;
  std::unique_ptr<StepGuard> guard_;
  std::unique_ptr<BatchSource> batches_;
  std::vector<RefusedSample> bad_samples_;  ///< of sources before batches_
  Schedule schedule_;
  AsyncReader async_reader_;
  ForwardContext training_;  ///< with the source of what the model itself draws (dropout)
  StepBody body_;
  at::Tensor grad_norm_;                  ///< of the last update; undefined without clipping
  std::optional<int64_t> replayed_step_;  ///< not finite the first time, running again
  std::optional<int64_t> evaluated_at_, saved_at_;
  Clock::time_point started_, boundary_;  ///< of training; of the step that comes
  double wall_s_before_ = 0;              ///< of the training, before it was resumed
  int64_t gradient_bytes_ = 0;            ///< at the last update
  int64_t steps_here_ = 0;                ///< taken by this process
  bool paused_ = false;
  RunOutcome outcome_;
};

}  // namespace trainopt
