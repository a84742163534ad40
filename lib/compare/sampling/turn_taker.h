// Lets arms share the machine, one round of turns at a time.
#pragma once

#include "compare/baseline.h"
#include "compare/sampling/round.h"

#include <span>
#include <vector>

namespace trainopt {

/// For each arm, the number of steps such that all process the same samples and the fastest arm's turn lasts at least
/// `turn_s`. Whole periods of every arm. If the global batch sizes have no small common multiple, the numbers of
/// samples are only nearly equal.
std::vector<int64_t> turn_steps(std::span<const WarmArm> arms, double turn_s);

/// About how long the fastest arm's turn lasts, judging by its first steps.
double turn_seconds(std::span<const WarmArm> arms, std::span<const int64_t> steps);

/// Trains the arms up to the position in the data of the one that is furthest, so that all see the same batches in
/// every round.
void catch_up(std::span<const WarmArm> arms);

/// Takes rounds of turns, and records the load by other processes meanwhile.
class TurnTaker {
 public:
  /// `steps`: of each arm's turn. `seed`: of the random order of the arms.
  TurnTaker(std::span<const WarmArm> arms, std::vector<int64_t> steps, uint64_t seed);

  /// The next round. It ends with the first turn that ends early. Throws what the arms throw.
  Round next();

 private:
  std::vector<std::shared_ptr<Arm>> arms_;
  std::vector<int64_t> steps_;
  uint64_t seed_;
  int64_t number_ = 0;
  std::vector<int> cpus_;
};

}  // namespace trainopt
