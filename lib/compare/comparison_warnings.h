// What a reader should know before trusting a comparison.
#pragma once

#include "compare/comparison.h"

#include <string>
#include <vector>

namespace trainopt {

/// One sentence each: a busy machine, throttled clocks, long turns in one arm, carry-over, too few turns.
std::vector<std::string> warnings_of(const Comparison& comparison);

/// Only the warnings about the machine: busy, throttled clocks.
std::vector<std::string> conditions_of(const Comparison& comparison);

/// The same from the mean load by other programs, in % of the cores, and the bits of gpu_throttle that were set.
std::vector<std::string> conditions(double other_load_pct, int64_t throttle);

/// "stalls that come less often than once in 52 turns (13 s of training)": stalls that this comparison may have missed.
std::string unseen_stalls(const Comparison& comparison);

/// "12m 30s": about how long a comparison like this one takes to find or rule out a difference of `effect` (> 0), a
/// share of the throughput. Empty: too few measurements to tell, or this one has taken as long.
std::string time_to_decide(const Comparison& comparison, double effect);

/// The share of an arm's time that its long turns took in excess of its median turn. A turn is long if it takes more
/// than 1.25 times the median.
double long_turn_share(const Comparison& comparison, bool of_a);

}  // namespace trainopt
