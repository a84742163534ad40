// What a run does about a step that cannot count. A non-finite step, or one that ran out of memory, is undone, and the
// run goes on from the state before it or ends and says why.
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
  struct Run {
    const Plan& plan;
    Step& step;
    StepWatch& watch;
    RankAgreement& ranks;
    RunListener& listener;
    RunOutcome& outcome;
    std::function<void()> reopen_data;  ///< delivers again from the step after outcome.steps on
    std::function<void()> start_again;  ///< also discards the records of steps after outcome.steps
  };
  explicit Recovery(Run run) : run_(std::move(run)) {}

  /// Tells the listener of steps that are done, the oldest first. The first that is not finite ends the list:
  /// train.on_nonfinite says what happens then. Throws UserError: diverged or hardware.
  void deliver(const std::vector<StepRecord>& rows);

  /// Runs `work`, the micro-batches of the step after outcome.steps. If memory runs out, undoes them and runs it again:
  /// first without what the runner has recorded, then with micro-batches of half the size. Throws UserError(memory) if
  /// that is not possible.
  void within_memory(const std::function<void()>& work);

  using Evaluation = std::optional<EvaluationResult>;
  /// Runs an evaluation. If memory runs out, runs it once more, without what the runner has recorded.
  Evaluation evaluate_within_memory(const std::function<Evaluation()>& evaluate);

 private:
  void handle_nonfinite(const StepRecord& row);
  void rewind_to(int64_t step);
  void undo_for_memory(const std::exception& cause);
  [[noreturn]] void refuse_smaller(int64_t gradient_bytes) const;

  Run run_;
  std::optional<int64_t> replayed_step_;  ///< the non-finite step that is being repeated
};

}  // namespace trainopt
