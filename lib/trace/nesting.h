// The call tree of the host events, by Python's rules (torch/autograd/profiler_util.py, EventList._build_tree).
#pragma once

#include "trace/events.h"
#include "trace/kernels.h"

#include <cstdint>
#include <vector>

namespace trainopt::trace {

/// Per host event. Device times are those of the kernels, copies and fills that an event launched.
struct Nesting {
  std::vector<uint32_t> parent;          ///< kNone: none
  std::vector<uint8_t> hidden;           ///< 1: does not count (README, "Operations")
  std::vector<int64_t> children_ns;      ///< host time of the children
  std::vector<int64_t> device_self_ns;   ///< empty without device events
  std::vector<int64_t> device_total_ns;  ///< with that of all descendants; empty without device events
  std::vector<uint32_t> unit;            ///< the innermost `unit::` or `unit_backward::` range; kNone: none
};

/// Also completes `launches`: a device event that names no operation belongs to the event around its launch.
Nesting nest(const RankTrace& trace, Launches& launches);

}  // namespace trainopt::trace
