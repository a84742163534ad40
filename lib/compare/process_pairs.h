// Comparison in pairs of fresh processes. What a process gets at its start and keeps for life (the pages of its
// tensors, the addresses of its code) makes two processes with the same recipe differ by up to a few per cent. Only
// further processes can distinguish that from an effect.
#pragma once

#include "compare/comparison.h"
#include "compare/make_arm.h"

namespace trainopt {

/// Creates one arm of a pair and warms it up. `pair`: 0, 1, …, for its folder. Throws what ArmFactory::make() throws.
using MakeArm = std::function<WarmArm(int64_t pair)>;

/// Creates arms from `spec` in the folders spec.folder, spec.folder-2, …. Only the first keeps the tensors of its first
/// steps.
MakeArm fresh_arms(std::string name, ArmSpec spec, ArmFactory& factory, const CompareOptions& options);

/// Called with the two arms of a pair while both are running.
using PairCallback = std::function<void(const WarmArm& a, const WarmArm& b)>;

/// A baseline without A: the first steps of A's twin of this kind, from a process that has ended when this returns.
Baseline make_twin_baseline(const ArmSpec& a, Yardstick kind, ArmFactory& factory, const CompareOptions& options);
/// Returns a function that compares the first pair's numbers, with tolerances from such a twin, into `numerics`. Both
/// arguments must outlive it.
PairCallback compare_first_steps(const Baseline& twin, std::optional<Numerics>& numerics);

struct PairOptions {
  MakeArm make_a, make_b;
  PairCallback first_pair;  ///< may be empty
  int64_t blocks = 3;       ///< per pair
  int64_t min_pairs = 1;    ///< before the budget may end sampling
  bool may_decide = true;   ///< false: sampling continues until the budget is spent
};

/// Pairs of fresh processes take turns until the verdict is decided, the budget (`until`) or options.repeats ends
/// sampling, or the observer stops it. A coin toss decides which arm of a pair is created first. Each pair is one
/// measurement for the sequential verdict. Times to the first step and memory are means over the pairs. Throws what the
/// arms of the first pair throw; a later failure ends sampling and is recorded in the result.
Comparison compare_processes(const PairOptions& pairs, const CompareOptions& options, Clock::time_point until,
                             const Observer& observer);

}  // namespace trainopt
