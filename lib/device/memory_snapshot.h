// The history of a GPU's memory as libtorch's allocator records it, for PyTorch's memory viewer
// (docs.pytorch.org/memory_viz).
#pragma once

#include <cstddef>
#include <string>

namespace trainopt {

/// Records allocations and releases on the GPUs of this process from now on, the latest `max_events` of them. Does
/// nothing without libtrainopt_cuda.so.
void record_gpu_memory_history(size_t max_events);

/// Ends that, and forgets what was recorded.
void end_gpu_memory_history();

/// What was recorded, with the state of the allocator, as a pickle. Empty without libtrainopt_cuda.so.
std::string gpu_memory_snapshot();

}  // namespace trainopt
