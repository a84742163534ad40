// Contradictions between an optimization and the rest of a recipe, detected before a plan is made.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace trainopt {

struct RecipeProblem {
  std::string key, message;
};

/// Passed to check() of each optimization that a recipe turns on, in the order in which make_plan() applies them. What
/// one optimization offers to later ones is a fact here, so that neither names the other.
struct OptionChecks {
  // Facts of the recipe
  bool deterministic = false;
  bool sync_batch_norm = false;  ///< batch-norm statistics cover all ranks
  bool stale_updates = false;    ///< gradients are applied one step late
  bool sharded = false;          ///< a rank holds only its share of the optimizer state or more
  bool sends_float32 = false;    ///< gradients are sent as float32, by request

  // Facts set by checks of earlier optimizations
  bool computes_in_bfloat16 = false;     ///< convolutions and matrix products
  bool bfloat16_weights = false;         ///< some parameters are held as bfloat16
  bool learning_rate_on_device = false;  ///< the update reads it on the device, never from the host

  std::vector<RecipeProblem> problems = {};
  void refuse(std::string key, std::string message) { problems.push_back({std::move(key), std::move(message)}); }
};

}  // namespace trainopt
