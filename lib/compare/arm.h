// One side of a comparison: a training that takes its turns, in this process or in one of its own.
#pragma once

#include "base/json.h"
#include "compare/turn.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// What is known of an arm once it has taken steps.
struct ArmFacts {
  int64_t step_samples = 0;  ///< of a whole step, over all micro-batches
  double time_to_first_step_s =
      0;  ///< from the making of the arm (in a process of its own: from when its command began)
  std::optional<double> peak_memory_mib;  ///< of its process; null where it shares one
  Json plan;                              ///< as plan.json
  Json receipts;                          ///< as summary.json has them
};
Json to_json(const ArmFacts& facts);
ArmFacts facts_from(const Json& json);

class Arm {
 public:
  virtual ~Arm() = default;
  /// Takes the next steps of the training, and waits for them. The first turn also leaves the first step's gradients
  /// and the update of the first few in folder(). Throws what the training throws; UserError(peer) if its process is
  /// gone.
  virtual Turn turn(int64_t steps) = 0;
  virtual ArmFacts facts() = 0;
  virtual int64_t steps_taken() const = 0;
  /// Whether the arm has a process of its own.
  virtual bool has_own_process() const = 0;
  virtual const std::filesystem::path& folder() const = 0;
};

}  // namespace trainopt
