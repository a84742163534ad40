// A comparison from two specs, with both arms in this process or in pairs of processes.
#pragma once

#include "compare/arms/make_arm.h"
#include "compare/comparison.h"
#include "compare/sampling/process_sets.h"

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

// Two arms in pairs of fresh processes.

/// A baseline without A: the first steps of A's twin of this kind, from a process that has ended when this returns.
Baseline make_twin_baseline(const ArmSpec& a, Yardstick kind, ArmFactory& factory, const CompareOptions& options);
/// Compares the numbers of the second arm with the first's, with tolerances from such a twin.
Numerics numbers_of_pair(Baseline twin, const WarmArm& a, const WarmArm& b);

/// The comparison of the two arms of `sets`, a pair of processes for each measurement. Throws as sample_sets() does.
Comparison compare_processes(const SetOptions& sets, const CompareOptions& options, Clock::time_point until,
                             const Observer& observer);

}  // namespace trainopt
