// Arms in processes of their own, made again and again. What a process was dealt when it started and keeps for life
// (the pages its tensors lie in, the addresses of its code) makes two processes with one recipe differ by up to some
// per cent. Only other processes can tell that from an effect.
#pragma once

#include "compare/arm_plan.h"
#include "compare/comparison.h"

namespace trainopt {

/// Makes one arm of a pair anew and warms it up. `pair`: 0, 1, …, for its folder. Throws what making an arm throws.
using MakeArm = std::function<WarmArm(int64_t pair)>;

/// Makes arms with `spec`, each in its folder: spec.folder, spec.folder-2, …. First steps stay in the first alone.
MakeArm fresh_arms(std::string name, ArmSpec spec, const Machine& machine, const CompareOptions& options);

/// The two arms of a pair while both live.
using PairSeen = std::function<void(const WarmArm& a, const WarmArm& b)>;

/// The first steps of A's twin of this kind, from a process that is gone when this returns: a baseline without A.
Baseline twin_alone(const ArmSpec& a, Yardstick kind, const Machine& machine, const CompareOptions& options);
/// Compares the first pair's numbers beside such a twin's, into `numerics`. Both must outlive it.
PairSeen compare_first_steps(const Baseline& twin, std::optional<Numerics>& numerics);

struct PairOptions {
  MakeArm make_a, make_b;
  PairSeen first_pair;       ///< may be empty
  int64_t blocks = 3;        ///< in each pair
  int64_t fewest_pairs = 1;  ///< before the budget may end it
  bool may_decide = true;    ///< false: goes on until the budget ends it
};

/// Pairs of fresh processes take turns until the verdict is decided, the budget (`until`) or options.repeats ends it,
/// or the observer stops it. A coin says which of a pair is made first. The sequential verdict takes one measurement a
/// pair. Times to the first step and memory are means over the pairs. Throws what the arms of the first pair throw; a
/// later failure ends the sampling and stands in the result.
Comparison compare_processes(const PairOptions& pairs, const CompareOptions& options, Clock::time_point until,
                             const Observer& observer);

}  // namespace trainopt
