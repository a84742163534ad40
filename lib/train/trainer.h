// The training loop. It is built from a plan and knows no option by name. It has no global state, so that two trainers
// can take turns in one process.
#pragma once

#include "base/clock.h"
#include "comm/communicator.h"
#include "data/batch_source.h"
#include "metrics/async_reader.h"
#include "train/bad_samples.h"
#include "train/evaluation.h"
#include "train/observe/observed_step.h"
#include "train/optimizer/schedule.h"
#include "train/plan.h"
#include "train/ranks.h"
#include "train/slot.h"
#include "train/step_guard.h"

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

namespace trainopt {

class CheckpointWriter;

/// Saved state of a run; both pointers may be null.
struct Persistence {
  CheckpointWriter* checkpoints = nullptr;  ///< receives checkpoints that are due
  const ArchiveReader* resume = nullptr;    ///< the state to resume from; read in the constructor
  bool forks = false;                       ///< `resume` is another run's; this run has no checkpoint yet
};

/// Comparisons of the weights over the ranks by this process.
struct ReplicaComparisons {
  int64_t passed = 0;
  double wall_s = 0;
};

/// Time between the steps of this process, in seconds.
struct BetweenSteps {
  double evaluation_s = 0, checkpoint_s = 0;  ///< times without those after the last step
};

struct RunOutcome {
  int64_t steps = 0, samples = 0;       ///< counts of the whole training, including before a resume
  std::optional<int64_t> resumed_from;  ///< the step of the checkpoint
  double wall_s = 0;  ///< time since the start of training, not of the process; includes time before a resume
  std::optional<double> time_to_first_step_s;  ///< time from this process's start of training to the end of its first
                                               ///< step, including device work
  int64_t skipped_steps = 0;                   ///< steps skipped because of non-finite values
  int64_t micro_split = 1;                     ///< number of pieces per micro-batch after memory ran out
  ReplicaComparisons replicas;
  BetweenSteps between;
  double evaluation_s = 0;  ///< time of all evaluations, including before a resume
  double training_s = 0;    ///< time to the end of the last step, without evaluations; includes time before a resume
  std::optional<LoaderWork> loading;           ///< this process's, to the end of its last step; null without a loader
  int stopped_by_signal = 0;                   ///< or a reason of base/signals.h
  std::optional<EvaluationResult> evaluation;  ///< the last one
  std::optional<TargetReached> target;         ///< set once an evaluation has found train.target
  StepTrace trace;                             ///< the observed step's trace, and counts over the run
};

class Trainer {
 public:
  /// `run_dir`: where parts may write; empty for none. `stop_signal`: checked after each step and between the batches
  /// of an evaluation; if non-zero on any rank, all ranks end the run there and discard the evaluation. `memory`: told
  /// what memory is for, if it is not null; must outlive the trainer. Throws
  /// UserError: checkpoint or data if the state to resume from does not match the plan; GpuLost.
  Trainer(Plan plan, std::filesystem::path run_dir, RunListener& listener, const std::atomic<int>& stop_signal,
          Persistence persistence = {}, std::shared_ptr<Communicator> communicator = make_single_communicator(),
          MemoryRecorder* memory = nullptr);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Trains to the end of the plan or until stopped. Throws UserError: diverged or hardware, depending on
  /// train.on_nonfinite; memory if the smallest micro-batch does not fit; GpuLost; and whatever parts throw. outcome()
  /// then tells how far the run got.
  void run();

  /// Runs one step, for callers that let trainers take turns.
  void step();
  /// Ends a turn: waits for the device, delivers outstanding records, and pauses the loader until the next step().
  void pause();
  /// Runs `work`, for callers that use the model's tensors. The listener hears of `stage`. Throws GpuLost, and whatever
  /// `work` throws.
  void during(const char* stage, const std::function<void()>& work);
  bool finished() const;

  /// Saves the state of every part, from which another run can resume. Model entries have torchvision's names.
  void save(ArchiveWriter& archive) const;
  /// The model's complete parameters and buffers on rank 0, nothing on other ranks. Every rank must call it, and inside
  /// during() if a GPU fault is to be reported as such.
  NamedTensors weights() const;
  /// Writes weights() as safetensors. Every rank must call it. Throws UserError: diverged, and nothing is written, if
  /// they are not finite.
  void write_weights(const std::filesystem::path& file) const;
  /// Runs `work` while the model has the averaged weights; false, and nothing done, if there is no average. Every rank
  /// must call it.
  bool with_average(const std::function<void()>& work);
  /// Samples that were substituted or left out, and the one that ended the run.
  BadSamples bad_samples() const;
  const Model& model() const { return *model_; }
  const Plan& plan() const { return plan_; }
  const RunOutcome& outcome() const { return outcome_; }

 private:
  Trainer(Plan plan, RunListener& listener, const std::atomic<int>& stop_signal, CheckpointWriter* checkpoints,
          std::shared_ptr<Communicator> communicator, MemoryRecorder* memory);
  void build(const std::filesystem::path& run_dir, const Persistence& persistence);

  struct MicroBatchResults;
  void train();
  void take_step();
  at::Tensor micro_step(const Batch& micro);
  at::Tensor forward(const Batch& micro);
  void backward(const at::Tensor& loss, bool is_last);
  at::Tensor update_step();
  std::optional<MicroBatchResults> run_micro_batches(int64_t step);
  Batch next_batch();
  void after_step(PendingRecord record, ObservedStep* observed);
  void compare_replicas();
  void agree();
  void add_memory_and_traffic(PendingRecord& record);
  void add_storage(const std::optional<StorageUse>& now, PendingRecord& record);
  void forget_storage();

  bool evaluation_due() const;
  void evaluate();
  void note_target(double training_s);  ///< notes the target if the last evaluation has found it

  // trainer_recovery.cpp: non-finite steps and running out of memory
  void deliver(const std::vector<StepRecord>& rows);
  bool is_finite(const StepRecord& row) const;
  void handle_nonfinite(const StepRecord& row);
  void rewind_to(int64_t step);
  int64_t min_micro_batch_size() const;
  void recover_memory(const std::exception& cause);
  std::optional<EvaluationResult> evaluate_within_memory(
      const std::function<std::optional<EvaluationResult>()>& evaluated);

  void run_largest_batch();

  /// Tells the listener, and remembers for a GPU fault's message, what comes now.
  void at(const char* stage);
  void or_gpu_lost(const std::function<void()>& work);
  std::string position() const;

  // trainer_state.cpp: saving and resuming
  void open_batches();
  void begin_resumed();
  void save_checkpoint();
  void save_model(ArchiveWriter& archive) const;
  bool stores(const std::string& name) const;
  NamedTensors of_all_stages(const NamedTensors& own) const;
  void load(const ArchiveReader& archive);

  Plan plan_;
  RunListener& listener_;
  const std::atomic<int>& stop_signal_;
  CheckpointWriter* checkpoints_;
  std::shared_ptr<Communicator> communicator_;
  std::unique_ptr<RankGroups> groups_;
  RankAgreement ranks_;
  std::optional<ReplicaCheck> replica_check_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Task> task_;
  std::unique_ptr<Precision> precision_;
  std::unique_ptr<ParameterStore> parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<StepRunner> runner_;
  std::unique_ptr<WeightAverage> average_;
  std::unique_ptr<StepGuard> guard_;
  StepPhases phases_;
  StepMemory memory_;
  std::unique_ptr<StepProfiler> profiler_;
  std::unique_ptr<BatchSource> batches_;
  BadSamples bad_samples_;  ///< `training` lists those that earlier batch sources found
  Schedule schedule_;
  std::optional<AsyncReader> async_reader_;  ///< set by build(), because it holds page-locked memory
  ForwardContext training_;                  ///< includes the generator for the model's random numbers (dropout)
  StepBody body_;
  at::Tensor grad_norm_;                  ///< gradient norm of the last update; undefined without clipping
  std::optional<int64_t> replayed_step_;  ///< the non-finite step that is being repeated
  std::optional<int64_t> evaluated_at_, saved_at_, compared_at_;
  Clock::time_point started_, boundary_;  ///< start of training; start of the next step
  double wall_s_before_ = 0;              ///< training time before a resume
  int64_t gradient_bytes_ = 0;            ///< gradients' bytes at the last update
  StorageUse storage_;                    ///< use until the last step
  int64_t process_steps_ = 0;             ///< steps taken by this process
  bool paused_ = false;
  const char* stage_ = "";  ///< "forward and backward"
  bool in_step_ = false;    ///< a step has begun and is not complete
  bool gpu_lost_ = false;
  RunOutcome outcome_;
};

}  // namespace trainopt
