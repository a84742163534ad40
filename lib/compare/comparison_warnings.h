// What a reader of a comparison should know before believing it.
#pragma once

#include "compare/comparison.h"

#include <string>
#include <vector>

namespace trainopt {

/// One sentence each: a busy machine, clocks held down, long turns in one arm, carry-over, too few turns.
std::vector<std::string> warnings_of(const Comparison& comparison);

/// Of them those about the machine: busy, clocks held down.
std::vector<std::string> conditions_of(const Comparison& comparison);

/// "stalls that come less often than once in 52 turns (13 s of training)": what so few turns would probably not show.
std::string unseen_stalls(const Comparison& comparison);

/// The share of an arm's time that its long turns took beyond its median turn; a turn is long from 1.25 times the
/// median.
double long_turn_share(const Comparison& comparison, bool of_a);

}  // namespace trainopt
