#include "comm/nccl_environment.h"

namespace trainopt {

std::map<std::string, std::string> nccl_environment(const ParallelConfig& config) {
  std::map<std::string, std::string> all{{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"}, {"TORCH_NCCL_DUMP_ON_TIMEOUT", "1"}, {"TORCH_NCCL_TRACE_BUFFER_SIZE", "2000"}};
  const NcclConfig& nccl = config.nccl;
  if (nccl.algo) all["NCCL_ALGO"] = *nccl.algo;
  if (nccl.proto) all["NCCL_PROTO"] = *nccl.proto;
  if (nccl.buffer_size_mb) all["NCCL_BUFFSIZE"] = std::to_string(*nccl.buffer_size_mb << 20);
  return all;
}

}  // namespace trainopt
