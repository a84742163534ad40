// Profiled units against the roofline: how much of what is possible each attains.
#pragma once

#include "base/json.h"
#include "roofline/unit_limits.h"

#include <string>
#include <vector>

namespace trainopt {

/// Adds to each unit of a profile (trace/analysis.h, also of several ranks) that has a limit, forward and backward of
/// all its calls: step_flops, bytes, least_ms, limited_by ("compute" or "memory"), the attainable_flops_per_s and
/// achieved_flops_per_s (null for a unit without multiplications), and attained_pct, its least time as a share of the
/// measured one.
void add_attained(Json& profile, const std::vector<UnitLimit>& limits);

/// A table of what add_attained() added; empty if it added nothing. Of several ranks, the first.
std::string attained_text(const Json& profile);

}  // namespace trainopt
