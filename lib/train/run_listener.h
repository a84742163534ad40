// Callbacks through which a run reports its progress.
#pragma once

#include "metrics/record.h"
#include "train/archive.h"
#include "train/evaluation.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

struct NonfiniteStep {
  int64_t step = 0, epoch = 0;
  std::optional<double> loss, grad_norm;
  std::vector<int64_t> sample_ids;         ///< of all ranks, in the order of ranks
  std::vector<int64_t> sample_ids_before;  ///< of the step before, if its update may be the cause
  std::string began;                       ///< where in the step, if something looked; otherwise empty
  std::string action;                      ///< what is done about it: "the step was skipped"
};

/// Called as events happen, on the trainer's thread.
class RunListener {
 public:
  virtual ~RunListener() = default;
  /// Called for steps in order, on a GPU one or two steps late. Telemetry columns are still empty.
  virtual void step_done(const StepRecord& row) = 0;
  virtual void evaluated(int64_t step, const EvaluationResult& result) = 0;
  /// A step's loss or gradients were non-finite. Called after its step_done().
  virtual void not_finite(const NonfiniteStep&) {}
  /// The trainer enters a stage such as "waiting for data" after `steps` completed steps. `stage` is a string literal.
  /// Called several times per step.
  virtual void at(const char* /*stage*/, int64_t /*steps*/) {}
  /// A checkpoint is about to be saved. The listener may add what its records need. Everything reported so far must be
  /// in the record files before the checkpoint is committed.
  virtual void save(ArchiveWriter&) {}
};

}  // namespace trainopt
