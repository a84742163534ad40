// What a reader should know before trusting a comparison: the parts of Comparison::warnings, and limits of what it
// sees.
#pragma once

#include "compare/comparison.h"

#include <string>
#include <vector>

namespace trainopt {

/// About the machine meanwhile: busy, throttled clocks.
std::vector<std::string> conditions_of(const std::vector<Round>& rounds);
void add_noise_warning(const std::optional<NoiseFloor>& noise, double min_effect, std::vector<std::string>& all);
/// About A and B: long turns in one of them, carry-over.
std::vector<std::string> warnings_about_arms(const PairResult& pair);
/// If all verdicts are decided by few turns.
void add_few_turns_warning(const PairResult& pair, std::vector<std::string>& all);
/// What would decide the pairs that are not decided. `unit`: a measurement's name.
std::vector<ToDecide> what_decides(const std::vector<PairResult>& pairs, const std::vector<Round>& rounds,
                                   std::string_view unit);

/// "stalls that come less often than once in 52 turns (13 s of training)": stalls that this comparison may have missed.
std::string unseen_stalls(const PairResult& pair);
/// Stalls that `turns` turns of each arm may have missed if each lasts `turn_s` seconds.
std::string unseen_stalls(int64_t turns, double turn_s);

/// "12m 30s": about how long a comparison like this one takes to find or rule out a difference of `effect` (> 0), a
/// share of the throughput. Empty: too few measurements to tell, or this one has taken as long.
std::string time_to_decide(const PairResult& pair, double effect);

/// The share of an arm's time that its long turns took in excess of its median turn. A turn is long if it takes more
/// than 1.25 times the median.
double long_turn_share(const PairResult& pair, bool of_a);

}  // namespace trainopt
