// Contradictions between an optimization and other parts of a recipe, found before there is a plan.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace trainopt {

struct RecipeProblem {
  std::string key, message;
};

/// Handed to the check of each optimization that a recipe turns on, in the order of the list in make_plan(). What one
/// optimization offers to later ones is a fact here, so that neither names the other.
struct OptionChecks {
  // Facts of the recipe
  bool deterministic = false;
  bool sync_batch_norm = false;  ///< batch-norm sees the samples of all ranks
  bool stale_updates = false;    ///< gradients are used a step late

  // Facts set by checks of earlier optimizations
  bool learning_rate_on_device = false;  ///< the update reads it there and never asks the host

  std::vector<RecipeProblem> problems = {};
  void refuse(std::string key, std::string message) { problems.push_back({std::move(key), std::move(message)}); }
};

}  // namespace trainopt
