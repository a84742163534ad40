#include "trace/operations.h"

#include "trace/events.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace trainopt::trace {
namespace {

/// What `group_by` distinguishes besides the name, as a number of RankTrace::names.
uint32_t group_of(const RankTrace& trace, const Nesting& nesting, size_t event, GroupBy group_by) {
  if (group_by == GroupBy::shape) return trace.host[event].shapes;
  if (group_by == GroupBy::unit && nesting.unit[event] != kNone) return trace.host[nesting.unit[event]].name;
  return kNone;
}

int64_t value_of(const Operation& operation, SortBy by) {
  switch (by) {
    case SortBy::cpu_self:
      return operation.cpu_self_ns;
    case SortBy::cpu_total:
      return operation.cpu_total_ns;
    case SortBy::device_self:
      return operation.device_self_ns;
    case SortBy::device_total:
      return operation.device_total_ns;
    case SortBy::calls:
      break;
  }
  return operation.calls;
}

}  // namespace

std::vector<Operation> list_operations(const RankTrace& trace, const Nesting& nesting, Interval scope,
                                       GroupBy group_by) {
  std::vector<Operation> operations;
  std::map<std::tuple<uint32_t, uint32_t, bool>, size_t> rows;
  size_t steps_row = SIZE_MAX;
  for (size_t i = 0; i < trace.host.size(); ++i) {
    const HostEvent& event = trace.host[i];
    if (nesting.hidden[i] != 0 || !scope.contains(event.start_ns)) continue;
    const bool annotation = event.kind == HostKind::annotation;
    const uint32_t group = group_of(trace, nesting, i, group_by);
    const auto [row, added] = rows.try_emplace({event.name, group, annotation}, operations.size());
    if (added) {
      const std::string_view name = trace.name(event);
      const bool step = annotation && name.starts_with(kStepLabel);
      if (step && steps_row != SIZE_MAX) row->second = steps_row;
      if (step && steps_row == SIZE_MAX) steps_row = operations.size();
      if (row->second == operations.size())
        operations.push_back(
            {std::string(step ? "ProfilerStep*" : name), std::string((*trace.names)[group]), event.kind});
    }
    Operation& operation = operations[row->second];
    ++operation.calls;
    operation.cpu_self_ns += event.duration_ns() - nesting.children_ns[i];
    operation.cpu_total_ns += event.duration_ns();
    if (event.kind != HostKind::runtime) operation.flops += std::max<int64_t>(event.extra, 0);
    if (nesting.device_self_ns.empty()) continue;
    operation.device_self_ns += nesting.device_self_ns[i];
    operation.device_total_ns += nesting.device_total_ns[i];
  }
  return operations;
}

void sort_operations(std::vector<Operation>& operations, SortBy by) {
  std::stable_sort(operations.begin(), operations.end(),
                   [by](const Operation& a, const Operation& b) { return value_of(a, by) > value_of(b, by); });
}

}  // namespace trainopt::trace
