// The names that mean something in a trace.
#pragma once

#include <string_view>

namespace trainopt::trace {

constexpr std::string_view kStepLabel = "ProfilerStep#";
constexpr std::string_view kUnitLabel = "unit::";
constexpr std::string_view kUnitBackwardLabel = "unit_backward::";
constexpr std::string_view kBackwardFunction = "autograd::engine::evaluate_function:";

/// A range that waits for a batch: `loader::wait`, or the DataLoader of Python.
inline bool is_loader(std::string_view name) {
  return name == "loader::wait" || name.starts_with("enumerate(DataLoader)#");
}

/// A collective's own range in c10d (torch/csrc/distributed/c10d: ProcessGroup*.cpp, the profiling titles).
inline bool is_collective_range(std::string_view name) {
  return name.starts_with("gloo:") || name.starts_with("nccl:") || name.starts_with("mpi:") || name.starts_with("ucc:");
}

/// Communication as the CPU sees it.
inline bool is_communication(std::string_view name) {
  return name.starts_with("comm::") || name.starts_with("c10d::") || name == "record_param_comms" ||
         is_collective_range(name);
}

/// NCCL's kernels: ncclDevKernel_…, before 2.19 ncclKernel_….
inline bool is_communication_kernel(std::string_view name) {
  return name.starts_with("ncclDevKernel") || name.starts_with("ncclKernel");
}

}  // namespace trainopt::trace
