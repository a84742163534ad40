// Measures a comparison, with all arms in this process or in sets of fresh processes.
#pragma once

#include "compare/arms/make_arm.h"
#include "compare/comparison.h"
#include "compare/sampling/process_sets.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt {

struct ArmsToCompare {
  std::string command = {}, job = {}, key = {};  ///< as in Comparison
  std::vector<std::string> names;
  std::vector<ArmSpec> specs;  ///< one for each name
  ArmHost host = ArmHost::this_process;
  bool with_numbers = true;  ///< compare the arms' numbers; in this process also measure the noise floor
};

/// Lets the arms take turns until the verdicts are decided, `until` is reached, or the observer stops it. nullopt: the
/// observer stopped it before the first round. Throws what the arms throw before the end of the first round, or set of
/// processes; a later failure is recorded.
std::optional<Comparison> compare_arms(const ArmsToCompare& arms, const CompareOptions& options,
                                       Clock::time_point until, ArmFactory& factory, const Observer& observer);

/// Lets the baseline's arm and B take turns in this process. Throws what the arms throw.
Comparison compare(const Baseline& baseline, WarmArm b, const CompareOptions& options, Clock::time_point until,
                   const Observer& observer);

/// Lets two arms take turns in pairs of fresh processes. `numbers`: compares the numbers of the first pair; may be
/// empty. Throws as sample_sets() does.
Comparison compare_in_process_pairs(SetOptions sets,
                                    const std::function<Numerics(std::span<const WarmArm> pair)>& numbers,
                                    const CompareOptions& options, Clock::time_point until, const Observer& observer);

/// The first steps of A's twins of this kind, from processes that have ended when this returns, which is by `until`.
Twins twins_in_processes(const ArmSpec& a, Yardstick kind, ArmFactory& factory, WarmUp& warm_up,
                         const CompareOptions& options, Clock::time_point until, const Observer& observer);

}  // namespace trainopt
