// What a run does about a step whose result cannot be used. A non-finite step, or the micro-batches of one that ran out
// of memory, are undone, and the run goes on from the state before them, or ends and says why.
#pragma once

#include "metrics/record.h"
#include "train/evaluation.h"
#include "train/run_outcome.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace trainopt {

class RankAgreement;
class RunListener;
class Step;
class StepWatch;
struct Plan;

class Recovery {
 public:
  /// What a recovery acts on; all of it must outlive the recovery.
  struct Parts {
    const Plan& plan;
    Step& step;
    StepWatch& watch;
    RankAgreement& ranks;
    RunListener& listener;
    RunOutcome& outcome;
    std::function<void()> reopen_data;  ///< opens the data at the step after outcome.steps
    std::function<void()> start_again;  ///< also discards the records of steps after outcome.steps
  };
  explicit Recovery(Parts parts) : parts_(std::move(parts)) {}

  /// Tells the listener of steps that are done, the oldest first. Stops at the first that is not finite, and applies
  /// train.on_nonfinite. Throws UserError: diverged or hardware.
  void deliver(const std::vector<StepRecord>& rows);

  /// Runs `work`, micro-batches of the step after outcome.steps. If memory runs out, undoes them and runs it again:
  /// first without what the runner has recorded, then, with one rank, with micro-batches of half the size. Throws
  /// UserError(memory) if that is not possible.
  void retry_if_out_of_memory(const std::function<void()>& work);

  using Evaluation = std::optional<EvaluationResult>;
  /// Runs an evaluation. If memory runs out, runs it once more, without what the runner has recorded.
  Evaluation evaluate_with_retry(const std::function<Evaluation()>& evaluate);

 private:
  void handle_nonfinite(const StepRecord& row);
  void rewind_to(int64_t step);
  void undo_for_memory(const std::exception& cause);
  [[noreturn]] void throw_out_of_memory(int64_t gradient_bytes) const;

  Parts parts_;
  std::optional<int64_t> repeated_step_;  ///< the non-finite step that is being repeated
};

}  // namespace trainopt
