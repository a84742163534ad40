// The table of operations, as `torch.profiler.profile().key_averages()` in Python.
#pragma once

#include "trace/events.h"
#include "trace/intervals.h"
#include "trace/nesting.h"

#include <cstdint>
#include <string>
#include <vector>

namespace trainopt::trace {

enum class GroupBy : uint8_t { name, shape, unit };

struct Operation {
  std::string name;   ///< all steps are `ProfilerStep*`
  std::string group;  ///< the input shapes or the unit; empty if there are none, or if grouped by name alone
  HostKind kind = HostKind::operation;
  int64_t calls = 0;
  int64_t cpu_self_ns = 0, cpu_total_ns = 0, device_self_ns = 0, device_total_ns = 0;
  int64_t flops = 0;  ///< 0: none, or unknown
};

enum class SortBy : uint8_t { cpu_self, cpu_total, device_self, device_total, calls };

/// The operations that started within `scope`, in the order of their first call.
std::vector<Operation> list_operations(const RankTrace& trace, const Nesting& nesting, Interval scope,
                                       GroupBy group_by);

/// Largest first; equal ones keep their order.
void sort_operations(std::vector<Operation>& operations, SortBy by);

}  // namespace trainopt::trace
