// How two arms share the machine: a block of turns at a time.
#pragma once

#include "compare/baseline.h"
#include "compare/turn.h"

#include <vector>

namespace trainopt {

struct TurnSteps {
  int64_t a = 1, b = 1;
};

/// So many steps that both arms see the same samples, and the quicker arm's turn lasts `turn_s`. Where global batches
/// have no small common multiple, nearly as many samples.
TurnSteps turn_steps(const WarmArm& a, const WarmArm& b, double turn_s);

/// About how long the quicker arm's turn lasts, by its first steps.
double turn_seconds(const WarmArm& a, const WarmArm& b, TurnSteps steps);

/// Takes blocks of turns, and notes what else the machine did meanwhile.
class TurnTaker {
 public:
  /// `seed`: of the coins that choose who begins a block.
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
