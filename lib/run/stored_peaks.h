// Where `trainopt roofline`'s measurements of this machine are kept.
#pragma once

#include "run/environment.h"
#include "base/json.h"
#include "roofline/roofline.h"
#include "roofline/unit_limits.h"

#include <c10/core/Device.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// $XDG_CACHE_HOME, or .cache in the home directory; null if neither is known.
std::optional<std::filesystem::path> cache_folder(const Environment& environment);

/// What `trainopt roofline` has measured for this machine, device and version; null if nothing.
std::optional<Roofline> measured_peaks(c10::Device device, const Environment& environment);

// Profiled units against the roofline: how much of what is possible each attains.

/// Adds to each unit of a profile (trace/analysis.h, also of several ranks) that has a limit, forward and backward of
/// all its calls: step_flops, bytes, least_ms, limited_by ("compute" or "memory"), the attainable_flops_per_s and
/// achieved_flops_per_s (null for a unit without multiplications), and attained_pct, its least time as a share of the
/// measured one.
void add_attained(Json& profile, const std::vector<UnitLimit>& limits);

/// A table of what add_attained() added; empty if it added nothing. Of several ranks, the first.
std::string attained_text(const Json& profile);

}  // namespace trainopt
