#pragma once

#include "comm/config.h"

#include <filesystem>
#include <map>
#include <string>

namespace trainopt {

/// Variables that NCCL and c10d read when they start: the recipe's algorithm, protocol and buffer size; failures abort
/// the collectives that wait, and a timeout writes a dump of the flight recorder.
std::map<std::string, std::string> nccl_environment(const ParallelConfig& config);
/// Sends the flight recorder's dumps to `nccl-trace-rankN` in the run directory, unless the environment already sets
/// the file. Call before creating the first communicator.
void set_nccl_trace_folder(const std::filesystem::path& run_dir);

}  // namespace trainopt
