#include "trace/kernels.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace trainopt::trace {
namespace {

struct KernelSums {
  Kernel kernel;
  int64_t grids = 0, blocks = 0, occupied_ns = 0;
  double occupancy_ns = 0;
};

void add_call(KernelSums& sums, const DeviceEvent& event) {
  ++sums.kernel.calls;
  sums.kernel.total_ns += event.duration_ns();
  if (event.blocks >= 0) {
    ++sums.grids;
    sums.blocks += event.blocks;
  }
  if (event.occupancy >= 0) {
    sums.occupied_ns += event.duration_ns();
    sums.occupancy_ns += event.occupancy * static_cast<double>(event.duration_ns());
  }
}

}  // namespace

int64_t launch_time(const RankTrace& trace, const Launches& launches, size_t device_event) {
  const uint32_t call = launches.call[device_event];
  const uint32_t host = call != kNone ? call : launches.operation[device_event];
  return host != kNone ? trace.host[host].start_ns : trace.device[device_event].start_ns;
}

std::vector<Kernel> list_kernels(const RankTrace& trace, const Launches& launches, Interval scope) {
  std::unordered_map<uint32_t, KernelSums> rows;
  for (size_t i = 0; i < trace.device.size(); ++i) {
    const DeviceEvent& event = trace.device[i];
    if (event.kind == DeviceKind::kernel && scope.contains(launch_time(trace, launches, i)))
      add_call(rows[event.name], event);
  }
  std::vector<Kernel> kernels;
  for (auto& [name, sums] : rows) {
    sums.kernel.name = (*trace.names)[name];
    sums.kernel.tensor_cores = uses_tensor_cores(sums.kernel.name);
    if (sums.grids > 0) sums.kernel.blocks = static_cast<double>(sums.blocks) / static_cast<double>(sums.grids);
    if (sums.occupied_ns > 0) sums.kernel.occupancy = sums.occupancy_ns / static_cast<double>(sums.occupied_ns);
    kernels.push_back(std::move(sums.kernel));
  }
  std::sort(kernels.begin(), kernels.end(), [](const Kernel& a, const Kernel& b) {
    return a.total_ns != b.total_ns ? a.total_ns > b.total_ns : a.name < b.name;
  });
  return kernels;
}

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
