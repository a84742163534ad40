// One side of a comparison: a training job that takes turns, in this process or in one of its own.
#pragma once

#include "base/json.h"
#include "compare/turn.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// What one rank contributes to a step.
struct RankShare {
  std::optional<double> peak_memory_mib;  ///< of the rank's process; null if other arms share it
  double state_mib = 0;                   ///< parameters, gradients and optimizer state that the rank holds
  double sent_mib = 0;                    ///< sent in a step's collectives, computed with wire_bytes()
};
/// The largest of each number over the ranks.
RankShare largest(const std::vector<RankShare>& ranks);

/// What is known of an arm once it has taken steps.
struct ArmFacts {
  int64_t step_samples = 0;               ///< of a full step, over all micro-batches
  int64_t period = 1;                     ///< steps after which its evaluations and checkpoints repeat
  double time_to_first_step_s = 0;        ///< since its creation; in a process of its own, since the command began
  std::optional<double> peak_memory_mib;  ///< of its process, the largest over the ranks; null if it shares one
  Json plan;                              ///< as in plan.json
  Json receipts;                          ///< as in summary.json
  std::optional<double> price_per_hour;   ///< the recipe's bench.price_per_hour
  std::vector<RankShare> ranks;           ///< in rank order; empty before the second step, and in older results
};
Json to_json(const ArmFacts& facts);
ArmFacts facts_from(const Json& json);

class Arm {
 public:
  virtual ~Arm() = default;
  /// Takes the next steps of the training, and waits for them. The first turn also writes the first step's gradients
  /// and the update of the first few steps to folder(). Throws what the training throws; UserError(peer) if its process
  /// has ended.
  virtual Turn turn(int64_t steps) = 0;
  virtual ArmFacts facts() = 0;
  virtual int64_t steps_taken() const = 0;
  virtual const std::filesystem::path& folder() const = 0;
};

}  // namespace trainopt
