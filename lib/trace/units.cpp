#include "trace/units.h"

#include "trace/events.h"

#include <algorithm>
#include <unordered_map>

namespace trainopt::trace {
namespace {

class UnitTable {
 public:
  UnitTable(const RankTrace& trace, const Nesting& nesting) : trace_(trace), nesting_(nesting) {}

  void add_range(uint32_t event) {
    if (is_inside_itself(event)) return;
    Unit& unit = row(event);
    const HostEvent& range = trace_.host[event];
    if (is_backward(event)) {
      unit.backward_ns += range.duration_ns();
    } else {
      unit.forward_ns += range.duration_ns();
      ++unit.calls;
    }
  }

  /// Calls `add(unit, backward)` for each unit around the event, once per name.
  template <class Add>
  void for_each_around(uint32_t event, const Add& add) {
    seen_.clear();
    for (uint32_t at = nesting_.unit[event]; at != kNone;) {
      const uint32_t name = trace_.host[at].name;
      if (std::find(seen_.begin(), seen_.end(), name) == seen_.end()) add(row(at), is_backward(at));
      seen_.push_back(name);
      const uint32_t parent = nesting_.parent[at];
      at = parent == kNone ? kNone : nesting_.unit[parent];
    }
  }

  std::vector<Unit> take() { return std::move(units_); }

 private:
  /// Whether a range with the same label surrounds the event.
  bool is_inside_itself(uint32_t event) const {
    for (uint32_t at = nesting_.parent[event]; at != kNone; at = nesting_.parent[at])
      if (trace_.host[at].name == trace_.host[event].name) return true;
    return false;
  }

  bool is_backward(uint32_t event) const { return trace_.name(trace_.host[event]).starts_with(kUnitBackwardLabel); }

  Unit& row(uint32_t event) {
    const auto known = rows_.find(trace_.host[event].name);
    if (known != rows_.end()) return units_[known->second];
    const auto prefix = is_backward(event) ? kUnitBackwardLabel : kUnitLabel;
    const std::string name(trace_.name(trace_.host[event]).substr(prefix.size()));
    auto found = std::find_if(units_.begin(), units_.end(), [&](const Unit& unit) { return unit.name == name; });
    if (found == units_.end()) {
      units_.emplace_back().name = name;
      found = units_.end() - 1;
    }
    rows_[trace_.host[event].name] = static_cast<size_t>(found - units_.begin());
    return *found;
  }

  const RankTrace& trace_;
  const Nesting& nesting_;
  std::vector<Unit> units_;
  std::unordered_map<uint32_t, size_t> rows_;  ///< by the number of the label, forward and backward
  std::vector<uint32_t> seen_;
};

}  // namespace

std::vector<Unit> list_units(const RankTrace& trace, const Nesting& nesting, const Launches& launches, Interval scope) {
  UnitTable table(trace, nesting);
  for (uint32_t i = 0; i < trace.host.size(); ++i) {
    const HostEvent& event = trace.host[i];
    if (nesting.unit[i] == kNone || !scope.contains(trace.host[nesting.unit[i]].start_ns)) continue;
    if (nesting.unit[i] == i) table.add_range(i);
    if (event.kind == HostKind::runtime || event.extra <= 0 || nesting.hidden[i] != 0) continue;
    table.for_each_around(i, [&](Unit& unit, bool backward) { unit.flops += backward ? 0 : event.extra; });
  }
  for (size_t i = 0; i < trace.device.size(); ++i) {
    const uint32_t host = launches.operation[i] != kNone ? launches.operation[i] : launches.call[i];
    if (host == kNone || nesting.unit[host] == kNone || !scope.contains(trace.host[nesting.unit[host]].start_ns))
      continue;
    const int64_t ns = trace.device[i].duration_ns();
    table.for_each_around(
        host, [&](Unit& unit, bool backward) { (backward ? unit.device_backward_ns : unit.device_forward_ns) += ns; });
  }
  return table.take();
}

}  // namespace trainopt::trace
