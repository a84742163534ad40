// Rounds in sets of fresh processes, one for each arm. What a process gets at its start and keeps for life (the pages
// of its tensors, the addresses of its code) makes two processes with the same recipe differ by up to a few per cent.
// Only further processes can distinguish that from an effect.
#pragma once

#include "compare/arms/make_arm.h"
#include "compare/sampling/sampling.h"

namespace trainopt {

/// Creates one arm of a set and warms it up. `set`: 0, 1, …, for its folder. Throws what ArmFactory::make() throws.
using MakeArm = std::function<WarmArm(int64_t set)>;

/// Creates arms from `spec` in the folders spec.folder, spec.folder-2, …. Only the first keeps the tensors of its first
/// steps.
MakeArm fresh_arms(std::string name, ArmSpec spec, ArmFactory& factory, std::shared_ptr<WarmUp> warm_up);

/// Called with the arms of a set while all are running.
using SetCallback = std::function<void(std::span<const WarmArm> arms)>;

struct SetOptions {
  std::vector<MakeArm> make;  ///< one for each arm
  SetCallback first_set;      ///< may be empty
  int64_t rounds = 3;         ///< per set; fewer if the budget is too short for as many sets as the level needs
  int64_t min_sets = 1;       ///< before the budget may end sampling, if they end by `latest`
  Clock::time_point latest = Clock::time_point::max();
  bool may_decide = true;  ///< false: sampling continues until the budget is spent
};

/// How many rounds, 1 to `most`, each of `sets` sets can take in `seconds`, if a set takes `start_s` to start and
/// `round_s` for each round.
int64_t rounds_in_time(double seconds, int64_t sets, double start_s, double round_s, int64_t most);

/// Sets of fresh processes take turns until every pair of arms is decided, the budget (`until`) or options.repeats ends
/// sampling, or the observer stops it, which may be before the first round. The arms of a set are created in a random
/// order. Each set is one measurement. Times to the first step and memory are means over the sets. Throws what the arms
/// of the first set throw; a later failure ends sampling and is recorded.
Sampling sample_sets(const SetOptions& sets, const CompareOptions& options, Clock::time_point until,
                     const Observer& observer, const LookCallback& look);

// The turns of one arm without a partner, in several fresh processes one after the other.

/// Rounds of a single arm, as many in each process as in a set of several arms; each process is a set. Takes
/// `processes` (or options.repeats), fewer if the next would not end by `until` or the observer stops it.
/// `ended` is "processes" if all were taken. The facts are those of the first process. Throws what the first process
/// throws; a later failure ends sampling and is recorded.
Sampling sample_alone(const MakeArm& make, int64_t processes, const CompareOptions& options, Clock::time_point until,
                      const Observer& observer);

/// Seconds per sample of each process, over its total time, long turns included.
std::vector<double> seconds_per_sample(const Sampling& alone);

}  // namespace trainopt
