// Which host event launched what the device did, and the table of kernels.
#pragma once

#include "trace/events.h"
#include "trace/flops.h"
#include "trace/intervals.h"

#include <cstdint>
#include <string>
#include <vector>

namespace trainopt::trace {

/// Positions in RankTrace::host, kNone where the trace does not say.
struct Launches {
  std::vector<uint32_t> call;       ///< per device event: the runtime call with its `correlation`
  std::vector<uint32_t> operation;  ///< per device event: the operation with its `External id`
  std::vector<uint32_t> caller;     ///< per host event: a runtime call's operation; empty if there are no such calls
};

/// An event without an `External id` belongs to the operation of its runtime call.
Launches find_launches(const RankTrace& trace);

struct Kernel {
  std::string name;
  int64_t calls = 0, total_ns = 0;
  double blocks = -1;     ///< mean number in the grid; -1: the trace does not say
  double occupancy = -1;  ///< Kineto's estimate in percent, weighted by time; -1: the trace does not say
  TensorCores tensor_cores = TensorCores::unknown;
};

/// When the host launched what the device did; without a known launch, when it started.
int64_t launch_time(const RankTrace& trace, const Launches& launches, size_t device_event);

/// The kernels launched within `scope`, longest total first. Copies and fills are not kernels.
std::vector<Kernel> list_kernels(const RankTrace& trace, const Launches& launches, Interval scope);

}  // namespace trainopt::trace
