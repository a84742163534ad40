// The time of each unit of the model, from the ranges `unit::NAME` and `unit_backward::NAME`.
#pragma once

#include "trace/events.h"
#include "trace/intervals.h"
#include "trace/kernels.h"
#include "trace/nesting.h"

#include <cstdint>
#include <string>
#include <vector>

namespace trainopt::trace {

struct Unit {
  std::string name;
  int64_t calls = 0;                                      ///< forward calls
  int64_t forward_ns = 0, backward_ns = 0;                ///< duration of the ranges on the CPU
  int64_t device_forward_ns = 0, device_backward_ns = 0;  ///< time of kernels, copies and fills launched inside them
  int64_t flops = 0;                                      ///< FLOPs of operations inside the forward ranges; 0: unknown
};

/// The units whose ranges started within `scope`, in the order of their first range. A unit inside another counts in
/// both.
std::vector<Unit> list_units(const RankTrace& trace, const Nesting& nesting, const Launches& launches, Interval scope);

}  // namespace trainopt::trace
