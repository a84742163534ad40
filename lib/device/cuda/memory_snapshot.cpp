#include "device/memory.h"

#include <torch/csrc/cuda/memory_snapshot.h>

#include <optional>

namespace trainopt {

void record_gpu_memory_history(size_t max_events) {
  // Without stacks: those of C++ take long to resolve, and say less than the labels in summary.json.
  torch::cuda::_record_memory_history(std::optional<std::string>("all"), /*context=*/std::nullopt, /*stacks=*/"python",
                                      max_events);
}

void end_gpu_memory_history() { torch::cuda::_record_memory_history(std::optional<std::string>()); }

std::string gpu_memory_snapshot() { return torch::cuda::_memory_snapshot_pickled(); }

}  // namespace trainopt
