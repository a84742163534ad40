// Profiled units against the roofline: how much of what is possible each attains.
#pragma once

#include "base/json.h"
#include "roofline/unit_limits.h"

#include <string>
#include <vector>

namespace trainopt {

/// Adds to each unit of a profile (trace/analysis.h, also of several ranks) that has a limit: bytes and least_ms of all
/// its calls, limited_by ("compute" or "memory"), and attained_pct, its least time as a share of the measured one.
void add_attained(Json& profile, const std::vector<UnitLimit>& limits);

/// A table of what add_attained() added; empty if it added nothing. Of several ranks, the first.
std::string attained_text(const Json& profile);

}  // namespace trainopt
