#include "trace/launches.h"

#include <algorithm>
#include <utility>

namespace trainopt::trace {
namespace {

/// A sorted list of (number, position): half the memory of a hash table.
class Positions {
 public:
  void add(int64_t number, size_t position) { all_.emplace_back(number, static_cast<uint32_t>(position)); }
  void sort() { std::sort(all_.begin(), all_.end()); }
  uint32_t find(int64_t number) const {
    const auto found = std::lower_bound(all_.begin(), all_.end(), std::pair(number, uint32_t{0}));
    return found != all_.end() && found->first == number ? found->second : kNone;
  }

 private:
  std::vector<std::pair<int64_t, uint32_t>> all_;
};

}  // namespace

Launches find_launches(const RankTrace& trace) {
  Positions operations, calls;
  bool any_calls = false;
  for (const HostEvent& event : trace.host) any_calls = any_calls || event.kind == HostKind::runtime;
  Launches launches;
  if (!any_calls && trace.device.empty()) return launches;
  for (size_t i = 0; i < trace.host.size(); ++i) {
    const HostEvent& event = trace.host[i];
    if (event.kind != HostKind::runtime && event.id > 0) operations.add(event.id, i);
    if (event.kind == HostKind::runtime && event.extra >= 0) calls.add(event.extra, i);
  }
  operations.sort();
  calls.sort();
  if (any_calls) launches.caller.assign(trace.host.size(), kNone);
  for (size_t i = 0; any_calls && i < trace.host.size(); ++i)
    if (trace.host[i].kind == HostKind::runtime && trace.host[i].id > 0)
      launches.caller[i] = operations.find(trace.host[i].id);
  for (const DeviceEvent& event : trace.device) {
    const uint32_t call = event.correlation >= 0 ? calls.find(event.correlation) : kNone;
    uint32_t operation = event.id > 0 ? operations.find(event.id) : kNone;
    if (operation == kNone && call != kNone) operation = launches.caller[call];
    launches.call.push_back(call);
    launches.operation.push_back(operation);
  }
  return launches;
}

}  // namespace trainopt::trace
