// The training loop. It is built from a plan and knows no option by name. It has no global state, so that two trainers
// can take turns in one process.
#pragma once

#include "base/clock.h"
#include "comm/communicator.h"
#include "data/batch_source.h"
#include "metrics/async_reader.h"
#include "train/bad_samples.h"
#include "train/optimizer/schedule.h"
#include "train/plan.h"
#include "train/ranks.h"
#include "train/recovery.h"
#include "train/run_outcome.h"
#include "train/step.h"
#include "train/watch.h"

#include <atomic>
#include <cstdint>
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

  /// Saves the state of every part, from which another run can resume. Entries have the model's names.
  void save(ArchiveWriter& archive) const;
  /// The model's complete parameters and buffers on rank 0, nothing on other ranks. Every rank must call it, and inside
  /// during() if a GPU fault is to be reported as such.
  NamedTensors weights() const;
  /// Samples that were substituted or left out, and the one that ended the run.
  BadSamples bad_samples() const;
  /// The parts of a step, for callers that use the model, or its averaged weights.
  Step& parts() { return *step_; }
  const Plan& plan() const { return plan_; }
  const RunOutcome& outcome() const { return outcome_; }

 private:
  Trainer(Plan plan, RunListener& listener, const std::atomic<int>& stop_signal, CheckpointWriter* checkpoints,
          std::shared_ptr<Communicator> communicator, MemoryRecorder* memory);
  void build(const std::filesystem::path& run_dir, const Persistence& persistence);
  void open_batches();

  struct MicroBatchResults;
  void train();
  void take_step();
  MicroBatchResults run_micro_batches();
  void after_step(PendingRecord record, const at::Tensor& grad_norm);
  void run_largest_batch();
  /// What happened until now counts towards no step.
  void begin_between_steps();

  void agree();
  void compare_replicas();
  void evaluate();
  void note_target(double training_s);  ///< notes the target if the last evaluation has found it
  void save_checkpoint();
  void load(const ArchiveReader& archive);

  /// Tells the listener, and remembers for a GPU fault's message, what comes now.
  void at(const char* stage);
  void or_gpu_lost(const std::function<void()>& work);

  Plan plan_;
  RunListener& listener_;
  const std::atomic<int>& stop_signal_;
  CheckpointWriter* checkpoints_;
  std::shared_ptr<Communicator> communicator_;
  RankAgreement ranks_;
  RunOutcome outcome_;
  std::unique_ptr<Step> step_;
  StepWatch watch_;
  Recovery recovery_;
  std::optional<ReplicaCheck> replica_check_;
  std::unique_ptr<BatchSource> batches_;
  BadSamples bad_samples_;  ///< `training` lists those that earlier batch sources found
  Schedule schedule_;
  std::optional<AsyncReader> async_reader_;  ///< set by build(), because it holds page-locked memory
  bool paused_ = false;

  /// The steps after which the run was last evaluated, saved and compared.
  struct {
    std::optional<int64_t> evaluated, saved, compared;
  } last_;

  struct {
    Clock::time_point started, boundary;  ///< start of training; start of the next step
    double wall_s_before = 0;             ///< training time before a resume

    double wall_s() const { return wall_s_before + seconds_since(started); }
  } times_;

  /// Where the run is, for a GPU fault's message.
  struct {
    const char* stage = "";  ///< "forward and backward"
    bool in_step = false;    ///< a step has begun and is not complete
    bool gpu_lost = false;
  } place_;
};

/// Writes trainer.weights() as safetensors. Every rank must call it. Throws UserError: diverged, and nothing is
/// written, if they are not finite.
void write_weights(const Trainer& trainer, const std::filesystem::path& file);

}  // namespace trainopt
