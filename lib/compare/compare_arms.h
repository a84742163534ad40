// A comparison from two specs, with both arms in this process or in pairs of processes.
#pragma once

#include "compare/comparison.h"
#include "compare/make_arm.h"

namespace trainopt {

struct ArmsToCompare {
  std::string name_a, name_b;
  ArmSpec a, b;
  ArmHost host = ArmHost::this_process;
  bool with_numbers = true;  ///< check that both train the same thing; in this process also measures the noise floor
};

/// nullopt: the observer stopped it before the first block of A and B. Throws what the arms throw.
std::optional<Comparison> compare_arms(const ArmsToCompare& arms, const CompareOptions& options,
                                       Clock::time_point until, ArmFactory& factory, const Observer& observer);

}  // namespace trainopt
