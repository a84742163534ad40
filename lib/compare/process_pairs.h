// Two arms in pairs of fresh processes.
#pragma once

#include "compare/comparison.h"
#include "compare/process_sets.h"

namespace trainopt {

/// A baseline without A: the first steps of A's twin of this kind, from a process that has ended when this returns.
Baseline make_twin_baseline(const ArmSpec& a, Yardstick kind, ArmFactory& factory, const CompareOptions& options);
/// Compares the numbers of the second arm with the first's, with tolerances from such a twin.
Numerics numbers_of_pair(Baseline twin, const WarmArm& a, const WarmArm& b);

/// The comparison of the two arms of `sets`, a pair of processes for each measurement. Throws as sample_sets() does.
Comparison compare_processes(const SetOptions& sets, const CompareOptions& options, Clock::time_point until,
                             const Observer& observer);

}  // namespace trainopt
