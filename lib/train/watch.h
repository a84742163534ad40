// What watches a trainer's steps, combined: the observed step's trace, the phases' times, memory, the profiler, remote
// reads and traffic. It begins and ends each step and fills the step's record.
#pragma once

#include "data/batch_source.h"
#include "train/observe/observed_step.h"
#include "train/run_outcome.h"

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace trainopt {

class RankAgreement;
class Step;
struct Plan;

class StepWatch {
 public:
  /// The arguments must outlive the watch. `recorder`: told what memory is for; may be null.
  StepWatch(const Plan& plan, Step& step, RankAgreement& ranks, RunOutcome& outcome, MemoryRecorder* recorder);

  /// Builds the profiler and labels the model's units. Call once, when the step's parts are built and nothing else will
  /// wrap units. `run_dir`: where traces and snapshots are written.
  void attach(const std::filesystem::path& run_dir);

  /// Call before the first work of a step.
  void begin();
  /// Stops recording operations, also of a step that failed.
  void stop_observing() { observed_.reset(); }
  /// Labels the gradients' memory as gradients. Call between the last backward and the update.
  void file_gradients();
  /// Counts the step, ends the observed one, and adds to `record` what was measured until now. Call after the step's
  /// last work, with outcome.steps counting it. `grad_norm`: what Step::update() returned.
  void fill(PendingRecord& record, BatchSource& batches, const at::Tensor& grad_norm);
  /// Whether the profiler's recording ends with this step, so that end() writes a trace, which takes a while.
  bool ends_recording() const { return profiler_->ends_recording(); }
  /// Call when the step's record is complete. The time that it takes counts towards no step.
  void end();
  /// Call after the last step of this process, and before the communicator is gone.
  void finish();

  /// Leaves what was read of remote files so far out of the next record.
  void forget_storage();
  /// Memory ran out in the step after outcome.steps.
  void out_of_memory();
  /// In which operation the non-finite values of `step` began (StepProfiler::where_nonfinite_began()).
  std::string where_nonfinite_began(int64_t step) { return profiler_->where_nonfinite_began(step); }
  /// Steps that this process has completed.
  int64_t steps() const { return steps_; }

 private:
  void add_storage(const std::optional<StorageUse>& now, PendingRecord& record);
  void add_memory_and_traffic(PendingRecord& record);

  const Plan& plan_;
  Step& step_;
  RankAgreement& ranks_;
  RunOutcome& outcome_;
  StepMemory memory_;
  std::unique_ptr<StepProfiler> profiler_;
  std::unique_ptr<ObservedStep> observed_;  ///< set during the observed step
  Profiling profiling_ = Profiling::none;   ///< the running step's
  StorageUse storage_;                      ///< use until the last step
  int64_t steps_ = 0;
};

}  // namespace trainopt
