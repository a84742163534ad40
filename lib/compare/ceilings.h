// What a job would gain if one of its costs were nothing.
#pragma once

#include "compare/ablation.h"

#include <array>

namespace trainopt {

inline constexpr std::array kCeilings{Ceiling::data, Ceiling::optimizer, Ceiling::logging};

/// The ceilings of one recipe alone, its arms in this process. All intervals hold at once. What fails is
/// a row with its reason.
std::vector<CeilingRow> measure_ceilings(const Recipe& recipe, const std::filesystem::path& folder,
                                         const CompareOptions& options, Clock::time_point until, const Machine& machine,
                                         const Observer& observer);

}  // namespace trainopt
