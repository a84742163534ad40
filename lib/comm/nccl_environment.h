#pragma once

#include "comm/config.h"

#include <map>
#include <string>

namespace trainopt {

/// What NCCL and c10d read from the environment when they start: algorithm, protocol and buffer size of the recipe; failures end the exchange that
/// waits for them, and a time-out leaves the flight recorder's dump behind.
std::map<std::string, std::string> nccl_environment(const ParallelConfig& config);

}  // namespace trainopt
