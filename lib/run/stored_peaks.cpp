#include "run/stored_peaks.h"

#include "roofline/measure_machine.h"
#include "run/version.h"

namespace trainopt {

std::optional<std::filesystem::path> cache_folder(const Environment& environment) {
  const auto variable = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  // The specification ignores relative paths here.
  if (const std::filesystem::path cache = variable("XDG_CACHE_HOME"); cache.is_absolute()) return cache;
  if (const std::filesystem::path home = variable("HOME"); home.is_absolute()) return home / ".cache";
  return std::nullopt;
}

std::optional<Roofline> measured_peaks(c10::Device device, const Environment& environment) {
  const auto cache = cache_folder(environment);
  return cache ? stored_roofline(*cache, roofline_key(device, kBuild.version)) : std::nullopt;
}

}  // namespace trainopt
