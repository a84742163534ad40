// Loss and accuracy on held-out data: no gradients, running batch-norm statistics, no dropout, the training precision,
// no label smoothing.
#pragma once

#include "base/json.h"
#include "data/sample_loader.h"
#include "model/model.h"
#include "model/task.h"
#include "train/config.h"

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

class Communicator;
class Precision;
struct Plan;

/// Results of the averaged weights, in the same evaluation.
struct AverageResult {
  double loss = 0;
  std::optional<double> top1_pct, top5_pct, perplexity;  ///< as below
};

struct EvaluationResult {
  double loss = 0;                           ///< mean over these samples, or over their tokens to predict
  std::optional<double> top1_pct, top5_pct;  ///< set for a classifier only
  std::optional<double> perplexity;          ///< e to the loss; set for a language model only
  int64_t samples = 0;                       ///< samples that were used
  int64_t left_out = 0;                      ///< samples that could not be used
  double wall_s = 0;
  std::optional<AverageResult> average;  ///< null without an average
  std::string trained_on;                ///< EvaluationPlan's
};

Json to_json(const EvaluationResult& result);
/// Inverse of to_json().
EvaluationResult evaluation_from(const Json& json);

/// Evaluates every sample of the plan's evaluation data once, by all ranks together, without those that cannot be used.
/// Waits for the device. `bad_samples`: those that this rank already knows; it adds those that it finds, also if it
/// throws. `stopped` is called before each batch and must return the same on every rank; once it returns true, the
/// result is nullopt.
std::optional<EvaluationResult> evaluate(Model& model, Task& task, Precision& precision, const Plan& plan,
                                         Communicator& communicator, std::vector<RefusedSample>& bad_samples,
                                         const std::function<bool()>& stopped);

// train.target: the result on held-out data at which a run has learned enough and ends.

/// The one number that a target names.
struct Goal {
  std::string metric;  ///< "top1_pct", "loss" or "perplexity": its key in the recipe and in evaluations
  double value = 0;
  bool at_least = false;  ///< otherwise at most
};

/// Null if the recipe names none. Requires at most one.
std::optional<Goal> goal_of(const TargetConfig& config);

/// What `result` has for the goal, of the averaged weights if there are any; null if the task does not measure it.
std::optional<double> measured_for(const Goal& goal, const EvaluationResult& result);
/// False if there is no goal or it was not measured.
bool reached(const std::optional<Goal>& goal, const EvaluationResult& result);

/// "top1_pct of at least 97".
std::string text(const Goal& goal);

/// When a run reached its target.
struct TargetReached {
  int64_t step = 0, samples = 0;
  double training_s = 0;  ///< time since the start of training, without evaluations; includes time before a resume
};

}  // namespace trainopt
