// The properties of an optimization that the catalogue lists.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainopt {

/// How training with an optimization compares with plain training from the same seed.
enum class Exactness {
  same_bits,  ///< losses and weights are bit-identical
  same_math,  ///< equal formulas, rounded differently: each loss agrees within Info::tolerance
  new_math    ///< training changes on purpose; the optimization's own tests judge it
};

constexpr std::string_view word_of(Exactness exactness) {
  switch (exactness) {
    case Exactness::same_bits:
      return "same_bits";
    case Exactness::same_math:
      return "same_math";
    case Exactness::new_math:
      return "new_math";
  }
  return "";
}

struct Info {
  const char* name;  ///< the switch's name in plans, receipts and `ablate`
  Exactness exactness;
  double tolerance = 0;         ///< for same_math: relative tolerance of each loss in a short run
  bool in_every_recipe = true;  ///< false: exactness fails with some recipe options, which the folder's README names
  /// It draws other random numbers (dropout, crops) or splits a step into other micro-batches. `compare` then judges
  /// its numbers against a run with another seed; otherwise against a run with rounded weights.
  bool other_draws = false;
  /// The value of the option without the optimization; null: the default.
  const char* off = "null";
  /// Every recipe has to choose it, so `ablate` measures it only if it is named.
  bool of_the_job = false;
};

// Contradictions between an optimization and the rest of a recipe, detected before a plan is made.

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
