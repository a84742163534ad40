// What a run tells about itself while it happens.
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
  std::vector<int64_t> sample_ids;
  std::vector<int64_t> sample_ids_before;  ///< of the step before, where only its effect on this one could be seen
  std::string action;                      ///< what is done about it: "the step was left out"
};

/// Told what happens while it happens, on the trainer's thread.
class RunListener {
 public:
  virtual ~RunListener() = default;
  /// Steps in order, on a GPU one or two late. Telemetry's columns are still empty.
  virtual void step_done(const StepRecord& row) = 0;
  virtual void evaluated(int64_t step, const EvaluationResult& result) = 0;
  /// A step whose loss or gradients were not finite; after its step_done().
  virtual void not_finite(const NonfiniteStep&) {}
  /// What the trainer does from now on, "waiting for data", after `steps` whole ones. A literal. Called some times a
  /// step.
  virtual void at(const char* /*stage*/, int64_t /*steps*/) {}
  /// A checkpoint is about to be taken: everything told so far must be in the files before it is, and may add what the
  /// records need.
  virtual void save(ArchiveWriter&) {}
};

}  // namespace trainopt
