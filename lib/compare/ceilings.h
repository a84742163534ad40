// Ceilings: what a job would gain if one of its costs were zero.
#pragma once

#include "compare/ablation.h"

#include <vector>

namespace trainopt {

/// The costs of a job with this number of ranks: communication only with several.
std::vector<Ceiling> ceilings_of(int64_t ranks);

/// The ceilings of one recipe, with the arms in this process, for a job with this number of ranks. All intervals hold
/// simultaneously (Bonferroni). A ceiling that fails becomes a row with its reason.
std::vector<CeilingRow> measure_ceilings(const Recipe& recipe, int64_t ranks, const std::filesystem::path& folder,
                                         const CompareOptions& options, Clock::time_point until, ArmFactory& factory,
                                         const Observer& observer);

}  // namespace trainopt
