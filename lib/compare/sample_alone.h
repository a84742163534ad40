// The turns of one arm without a partner, in several fresh processes one after the other.
#pragma once

#include "compare/process_sets.h"

namespace trainopt {

/// Rounds of a single arm, as many in each process as in a set of several arms; each process is a set. Takes
/// `processes` (or options.repeats), fewer if the next would not end by `until` or the observer stops it; always one.
/// `ended` is "processes" if all were taken. The facts are those of the first process. Throws what the first process
/// throws; a later failure ends sampling and is recorded.
Sampling sample_alone(const MakeArm& make, int64_t processes, const CompareOptions& options, Clock::time_point until,
                      const Observer& observer);

/// Seconds per sample of each process, over its total time, long turns included.
std::vector<double> seconds_per_sample(const Sampling& alone);

}  // namespace trainopt
