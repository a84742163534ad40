// A comparison from two specs: what both have in one process, or each in processes of its own.
#pragma once

#include "compare/comparison.h"
#include "compare/make_arm.h"

namespace trainopt {

struct ArmsToCompare {
  std::string name_a, name_b;
  ArmSpec a, b;
  ArmHost host = ArmHost::this_process;
  bool with_numbers = true;  ///< whether they train the same thing; in this process also the noise floor
};

/// nullopt: the observer stopped it before A and B met. Throws what the arms throw.
std::optional<Comparison> compare_arms(const ArmsToCompare& arms, const CompareOptions& options,
                                       Clock::time_point until, const Machine& machine, const Observer& observer);

}  // namespace trainopt
