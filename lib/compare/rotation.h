// Several arms in one fair rotation: every pair of them is compared, and all conclusions hold together.
#pragma once

#include "compare/arms/make_arm.h"
#include "compare/comparison.h"
#include "statistics/spread.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// With more arms, rounds are long, and the verdicts of all pairs take much memory.
inline constexpr size_t kMostArms = 12;

/// What the headline says: the arm with the highest throughput, and those that are not shown to be slower.
struct Fastest {
  std::vector<size_t> arms;     ///< the fastest as measured, then the others in descending order of throughput
  bool alike = false;           ///< all pairs of them have no effect
  std::optional<double> ahead;  ///< the least ratio shown of the first one's throughput to that of any arm not listed
};

struct Rotation {
  std::string job, key;  ///< what the arms have in common, as the user named it; what they differ in
  double level = 0.95;   ///< level of all conclusions together
  double min_effect = 0.01;
  uint64_t seed = 0;  ///< seeds the order of the turns
  Sampling sampling;
  std::optional<NoiseFloor> noise;                ///< the first arm's noise floor; null in sets of processes
  std::vector<std::optional<Numerics>> numerics;  ///< each arm's agreement with the first one, which has none

  // Computed by judge().
  std::vector<ArmResult> arms;    ///< in the order given
  std::vector<Comparison> pairs;  ///< as in pairs_of(), B the later one; each at pair_level(), without turns and arms
  Fastest fastest;
  std::vector<std::string> warnings;

  int64_t turns() const { return 2 * static_cast<int64_t>(sampling.rounds.size()); }  ///< turns of each arm
  int64_t sets() const { return sampling.rounds.empty() ? 0 : sampling.rounds.back().set + 1; }
  /// The comparison of arms `a` < `b`.
  const Comparison& pair(size_t a, size_t b) const;
};

/// Computes all results from the rounds, by the rule that applied during sampling.
void judge(Rotation& rotation);
/// Computes all results from the verdicts of these rounds.
void judge(Rotation& rotation, const PairVerdicts& verdicts);

struct ArmsToRotate {
  std::string job, key;
  std::vector<std::string> names;
  std::vector<ArmSpec> specs;  ///< one for each name
  ArmHost host = ArmHost::this_process;
  bool with_numbers = true;  ///< check that all train the same thing; in this process also measures the noise floor
};
using KeepRotation = std::function<void(const Rotation&)>;

/// `keep`: called from time to time with the result so far. nullopt: the observer stopped it before the first round.
/// Throws what the arms throw before the end of the first round, or set of processes; a later failure is recorded.
std::optional<Rotation> rotate(const ArmsToRotate& arms, const CompareOptions& options, Clock::time_point until,
                               ArmFactory& factory, const Observer& observer, const KeepRotation& keep);

// Makes the intervals of several ratios agree with each other.

/// `ratios`: for the pairs of pairs_of(arms), an interval of B's throughput relative to A's; null: unknown. If all
/// intervals hold, so do their products along every chain of arms: if B is at least 3 % faster than A, and C at least
/// 2 % faster than B, then C is at least 5.06 % faster than A. Narrows each interval to what all chains allow, so that
/// conclusions drawn from them cannot contradict each other. Returns false, and changes nothing, if no throughputs
/// satisfy all intervals.
bool make_consistent(std::vector<std::optional<Interval>>& ratios, size_t arms);

}  // namespace trainopt
