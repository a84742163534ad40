// Ceilings: what a job would gain if one of its costs were zero.
#pragma once

#include "compare/ablation.h"

#include <array>

namespace trainopt {

inline constexpr std::array kCeilings{Ceiling::data, Ceiling::optimizer, Ceiling::logging};

/// The ceilings of one recipe, with the arms in this process. All intervals hold simultaneously (Bonferroni). A ceiling
/// that fails becomes a row with its reason.
std::vector<CeilingRow> measure_ceilings(const Recipe& recipe, const std::filesystem::path& folder,
                                         const CompareOptions& options, Clock::time_point until, ArmFactory& factory,
                                         const Observer& observer);

}  // namespace trainopt
