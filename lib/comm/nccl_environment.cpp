#include "comm/nccl_environment.h"

#include <cstdlib>

namespace trainopt {

std::map<std::string, std::string> nccl_environment(const ParallelConfig& config) {
  std::map<std::string, std::string> all{{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "2"},
                                         // Otherwise c10d's watchdog ends the process before it can say what happened.
                                         {"TORCH_NCCL_RETHROW_CUDA_ERRORS", "0"},
                                         {"TORCH_NCCL_DUMP_ON_TIMEOUT", "1"},
                                         {"TORCH_NCCL_TRACE_BUFFER_SIZE", "2000"}};
  const NcclConfig& nccl = config.nccl;
  if (nccl.algo) all["NCCL_ALGO"] = *nccl.algo;
  if (nccl.proto) all["NCCL_PROTO"] = *nccl.proto;
  if (nccl.buffer_size_mb) all["NCCL_BUFFSIZE"] = std::to_string(*nccl.buffer_size_mb << 20);
  return all;
}

void set_nccl_trace_folder(const std::filesystem::path& run_dir) {
  ::setenv("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", (std::filesystem::absolute(run_dir) / "nccl-trace-rank").c_str(),
           /*overwrite=*/0);  // c10d appends the rank
}

}  // namespace trainopt
