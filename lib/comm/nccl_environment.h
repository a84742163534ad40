// NCCL's settings, which it reads from the environment when it starts.
#pragma once

#include "comm/config.h"

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace trainopt {

/// The variables that `parallel.nccl` sets, with names and values as NCCL documents them; a key that is null sets none.
std::map<std::string, std::string> nccl_variables(const NcclConfig& nccl);
/// What is wrong with the values, as key below `parallel.nccl` and sentence. NCCL itself may accept a misspelt word
/// silently, or fail only after all ranks have started.
std::vector<std::pair<std::string, std::string>> nccl_problems(const NcclConfig& nccl);

/// nccl_variables(), and what c10d needs: failures abort the collectives that wait, and a timeout writes a dump of the
/// flight recorder.
std::map<std::string, std::string> nccl_environment(const NcclConfig& nccl);
/// Sends the flight recorder's dumps to `nccl-trace-rankN` in the run directory, unless the environment already sets
/// the file. Call before creating the first communicator.
void set_nccl_trace_folder(const std::filesystem::path& run_dir);

}  // namespace trainopt
