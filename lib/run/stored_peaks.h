// Where `trainopt roofline`'s measurements of this machine are kept.
#pragma once

#include "roofline/roofline.h"
#include "run/environment.h"

#include <c10/core/Device.h>

#include <filesystem>
#include <optional>

namespace trainopt {

/// $XDG_CACHE_HOME, or .cache in the home directory; null if neither is known.
std::optional<std::filesystem::path> cache_folder(const Environment& environment);

/// What `trainopt roofline` has measured for this machine, device and version; null if nothing.
std::optional<Roofline> measured_peaks(c10::Device device, const Environment& environment);

}  // namespace trainopt
