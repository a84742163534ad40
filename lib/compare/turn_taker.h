// Lets two arms share the machine, one block of turns at a time.
#pragma once

#include "compare/baseline.h"
#include "compare/turn.h"

#include <vector>

namespace trainopt {

struct TurnSteps {
  int64_t a = 1, b = 1;
};

/// The number of steps such that both arms process the same samples and the faster arm's turn lasts at least `turn_s`.
/// If the global batch sizes have no small common multiple, the numbers of samples are only nearly equal.
TurnSteps turn_steps(const WarmArm& a, const WarmArm& b, double turn_s);

/// About how long the faster arm's turn lasts, judging by its first steps.
double turn_seconds(const WarmArm& a, const WarmArm& b, TurnSteps steps);

/// Takes blocks of turns, and records the load by other processes meanwhile.
class TurnTaker {
 public:
  /// `seed`: of the coin tosses that decide which arm starts a block.
  TurnTaker(Arm& a, Arm& b, TurnSteps steps, uint64_t seed);

  /// The next block. Throws what the arms throw.
  Block next();

 private:
  Arm& a_;
  Arm& b_;
  TurnSteps steps_;
  uint64_t seed_;
  int64_t number_ = 0;
  std::vector<int> cpus_;
};

}  // namespace trainopt
