#pragma once

#include "comm/config.h"

#include <filesystem>
#include <map>
#include <string>

namespace trainopt {

/// What NCCL and c10d read from the environment when they start: algorithm, protocol and buffer size of the recipe;
/// failures end the exchange that waits for them, and a time-out leaves the flight recorder's dump behind.
std::map<std::string, std::string> nccl_environment(const ParallelConfig& config);
/// Where the flight recorder's dumps go, `nccl-trace-rankN` in the run directory, unless the environment says it.
/// Before the first communicator.
void set_nccl_trace_folder(const std::filesystem::path& run_dir);

}  // namespace trainopt
