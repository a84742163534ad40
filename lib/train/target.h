// train.target: the result on held-out data at which a run has learned enough and ends.
#pragma once

#include "train/config.h"
#include "train/evaluation.h"

#include <optional>
#include <string>

namespace trainopt {

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
  double training_s = 0;  ///< since the start of training, without evaluations; includes time before a resume
};

}  // namespace trainopt
