// How far a run has got, and what it has cost so far.
#pragma once

#include "data/loader.h"
#include "train/evaluation.h"
#include "train/observe/step_trace.h"

#include <cstdint>
#include <optional>

namespace trainopt {

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

}  // namespace trainopt
