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

/// "stalls that come less often than once in 52 turns (13 s of training)": stalls that this comparison may have missed.
std::string unseen_stalls(const Comparison& comparison);

/// The share of an arm's time that its long turns took in excess of its median turn. A turn is long if it takes more
/// than 1.25 times the median.
double long_turn_share(const Comparison& comparison, bool of_a);

}  // namespace trainopt
