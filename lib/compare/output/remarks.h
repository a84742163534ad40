// What a reader should know before trusting a comparison.
#pragma once

#include "compare/ablation.h"
#include "compare/comparison.h"

#include <string>
#include <vector>

namespace trainopt {

/// One sentence each: a busy machine, throttled clocks, long turns in one arm, carry-over, too few turns.
std::vector<std::string> warnings_of(const Comparison& comparison);

// The parts of warnings_of(), for comparisons of more than two arms.

/// About the machine meanwhile: busy, throttled clocks.
std::vector<std::string> conditions_of(const std::vector<Block>& blocks);
std::vector<std::string> conditions_of(const std::vector<Round>& rounds);
void add_noise_warning(const std::optional<NoiseFloor>& noise, double min_effect, std::vector<std::string>& all);
/// About A and B: long turns in one of them, carry-over.
std::vector<std::string> warnings_about_arms(const Comparison& comparison);
/// If the verdict is inconclusive for want of measurements: about how many would find or rule out min_effect.
std::optional<int64_t> more_measurements(const Comparison& comparison);
/// `decided`: whether all verdicts are. `needed`: measurements that would decide. `unit`: a measurement's name.
void add_few_turns_warning(const Comparison& comparison, bool decided, std::optional<int64_t> needed,
                           std::string_view unit, std::vector<std::string>& all);

/// "stalls that come less often than once in 52 turns (13 s of training)": stalls that this comparison may have missed.
std::string unseen_stalls(const Comparison& comparison);
/// Stalls that `turns` turns of each arm may have missed if each lasts `turn_s` seconds.
std::string unseen_stalls(int64_t turns, double turn_s);

/// "12m 30s": about how long a comparison like this one takes to find or rule out a difference of `effect` (> 0), a
/// share of the throughput. Empty: too few measurements to tell, or this one has taken as long.
std::string time_to_decide(const Comparison& comparison, double effect);

/// The share of an arm's time that its long turns took in excess of its median turn. A turn is long if it takes more
/// than 1.25 times the median.
double long_turn_share(const Comparison& comparison, bool of_a);

}  // namespace trainopt
