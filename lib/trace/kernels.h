// The table of kernels.
#pragma once

#include "trace/events.h"
#include "trace/intervals.h"
#include "trace/launches.h"
#include "trace/tensor_cores.h"

#include <cstdint>
#include <string>
#include <vector>

namespace trainopt::trace {

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
