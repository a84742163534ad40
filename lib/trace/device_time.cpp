#include "trace/device_time.h"

#include "trace/events.h"
#include "trace/kernels.h"

#include <algorithm>
#include <map>
#include <optional>

namespace trainopt::trace {
namespace {

/// Consecutive kernels of a full queue start this close (HTA, breakdown_analysis.py: consecutive_kernel_delay = 30).
constexpr int64_t kBackToBackNs = 30;

/// One device's events within the scope.
struct OneDevice {
  std::vector<Interval> compute, exchange, copies;
  std::vector<std::pair<int64_t, int64_t>> starts;  ///< each compute kernel's start and its launch, -1: unknown
};

std::string direction_of(std::string_view name) {
  for (const char* direction : {"HtoD", "DtoH", "DtoD", "PtoP"})
    if (name.find(direction) != std::string_view::npos) return direction;
  return "other";
}

std::map<int32_t, OneDevice> split_by_device(const RankTrace& trace, const Launches& launches, Interval scope) {
  std::map<int32_t, OneDevice> devices;
  for (size_t i = 0; i < trace.device.size(); ++i) {
    const DeviceEvent& event = trace.device[i];
    if (!scope.contains(launch_time(trace, launches, i))) continue;
    OneDevice& device = devices[event.device];
    const Interval time{event.start_ns, event.end_ns};
    if (event.kind != DeviceKind::kernel) {
      device.copies.push_back(time);
    } else if (is_communication_kernel(trace.name(event))) {
      device.exchange.push_back(time);
    } else {
      device.compute.push_back(time);
      const uint32_t call = launches.call[i];
      device.starts.emplace_back(event.start_ns, call == kNone ? -1 : trace.host[call].start_ns);
    }
  }
  return devices;
}

/// Adds the instants of one gap, which ends when a kernel launched at `launched_ns` starts.
void explain_gap(Interval gap, int64_t launched_ns, const Intervals& exchange, const Intervals& copies,
                 std::array<int64_t, kIdleCauses>& idle_ns) {
  const auto add = [&](IdleCause cause, int64_t ns) { idle_ns[static_cast<size_t>(cause)] += ns; };
  if (gap.length_ns() < kBackToBackNs) return add(IdleCause::launch, gap.length_ns());
  const Intervals exchanged = clipped(exchange, gap);
  Intervals left = difference({gap}, exchanged);
  const Intervals copied = intersection(left, clipped(copies, gap));
  left = difference(left, copied);
  add(IdleCause::exchange, length_ns(exchanged));
  add(IdleCause::copy, length_ns(copied));
  if (launched_ns < 0) return add(IdleCause::unknown, length_ns(left));
  const int64_t before_launch = length_ns(clipped(left, {gap.start_ns, std::min(launched_ns, gap.end_ns)}));
  add(IdleCause::host, before_launch);
  add(IdleCause::launch, length_ns(left) - before_launch);
}

void add_device(OneDevice& device, DeviceTime& sums) {
  if (device.compute.empty()) return;
  const Intervals busy = merged(device.compute), exchange = merged(device.exchange), copies = merged(device.copies);
  if (busy.empty()) return;
  std::sort(device.starts.begin(), device.starts.end());
  sums.span_ns += busy.back().end_ns - busy.front().start_ns;
  sums.busy_ns += length_ns(busy);
  for (size_t i = 1; i < busy.size(); ++i) {
    const Interval gap{busy[i - 1].end_ns, busy[i].start_ns};
    // The first kernel after the gap; kernels without a duration may have started in it.
    const auto next = std::lower_bound(device.starts.begin(), device.starts.end(), std::pair(gap.end_ns, INT64_MIN));
    explain_gap(gap, next->second, exchange, copies, sums.idle_ns);
    ++sums.gaps;
  }
}

std::vector<CopySpeed> copy_speeds(const RankTrace& trace, const Launches& launches, Interval scope) {
  std::map<std::string, CopySpeed> rows;
  for (size_t i = 0; i < trace.device.size(); ++i) {
    const DeviceEvent& event = trace.device[i];
    if (event.kind != DeviceKind::copy || !scope.contains(launch_time(trace, launches, i))) continue;
    CopySpeed& row = rows[direction_of(trace.name(event))];
    ++row.calls;
    row.bytes += event.bytes;
    row.ns += event.duration_ns();
  }
  std::vector<CopySpeed> copies;
  for (auto& [direction, row] : rows) {
    row.direction = direction;
    copies.push_back(row);
  }
  return copies;
}

Exchange overlap(const Intervals& exchange, const Intervals& compute) {
  return {length_ns(exchange), length_ns(intersection(exchange, compute))};
}

/// What lies within the steps: an exchange between two of them is no part of their wall time.
Intervals within_steps(std::vector<Interval> parts, const Steps& steps) {
  std::vector<Interval> windows;
  for (const Step& step : steps.all) windows.push_back(step.window);
  return intersection(merged(std::move(parts)), merged(std::move(windows)));
}

/// The instants at which a thread of the step runs an operation outside of communication.
Intervals host_compute(const RankTrace& trace, const Steps& steps) {
  std::map<uint32_t, std::pair<std::vector<Interval>, std::vector<Interval>>> threads;
  for (const HostEvent& event : trace.host) {
    if (!steps.runs_step(event.thread)) continue;
    auto& [operations, communication] = threads[event.thread];
    if (is_communication(trace.name(event)))
      communication.push_back({event.start_ns, event.end_ns});
    else if (event.kind == HostKind::operation)
      operations.push_back({event.start_ns, event.end_ns});
  }
  std::vector<Interval> all;
  for (auto& [thread, parts] : threads)
    for (const Interval& part : difference(merged(std::move(parts.first)), merged(std::move(parts.second))))
      all.push_back(part);
  return merged(std::move(all));
}

}  // namespace

DeviceTime measure_devices(const RankTrace& trace, const Launches& launches, Interval scope) {
  DeviceTime sums;
  for (auto& [number, device] : split_by_device(trace, launches, scope)) add_device(device, sums);
  sums.copies = copy_speeds(trace, launches, scope);
  return sums;
}

Exchange measure_exchange(const RankTrace& trace, const Steps& steps) {
  std::vector<Interval> exchange, compute;
  for (const DeviceEvent& event : trace.device)
    if (event.kind == DeviceKind::kernel)
      (is_communication_kernel(trace.name(event)) ? exchange : compute).push_back({event.start_ns, event.end_ns});
  if (!exchange.empty()) return overlap(within_steps(std::move(exchange), steps), merged(std::move(compute)));
  for (const HostEvent& event : trace.host)
    if (is_communication(trace.name(event))) exchange.push_back({event.start_ns, event.end_ns});
  if (exchange.empty()) return {};
  return overlap(within_steps(std::move(exchange), steps), host_compute(trace, steps));
}

namespace {

std::optional<Category> host_category(const RankTrace& trace, const HostEvent& event, const Steps& steps) {
  const std::string_view name = trace.name(event);
  if (is_communication(name)) return Category::communication;  // on any thread: gloo has its own
  if (!steps.runs_step(event.thread)) return {};
  if (event.kind == HostKind::runtime) return Category::runtime;
  if (is_loader(name)) {
    if (event.thread == steps.training_thread) return Category::loader;
    return {};
  }
  if (event.kind == HostKind::annotation && name.starts_with(kStepLabel)) return {};
  return Category::cpu;
}

Category device_category(const RankTrace& trace, const DeviceEvent& event) {
  if (event.kind == DeviceKind::copy) return Category::copy;
  if (event.kind == DeviceKind::fill) return Category::fill;
  return is_communication_kernel(trace.name(event)) ? Category::communication : Category::kernel;
}

}  // namespace

std::array<Intervals, kCategories> active_times(const RankTrace& trace, const Steps& steps) {
  std::array<std::vector<Interval>, kCategories> parts;
  const auto add = [&](Category category, const auto& event) {
    auto& list = parts[static_cast<size_t>(category)];
    // Events inside the one before them are the rule and add nothing.
    if (list.empty() || event.start_ns < list.back().start_ns || event.end_ns > list.back().end_ns)
      list.push_back({event.start_ns, event.end_ns});
  };
  for (const HostEvent& event : trace.host)
    if (const auto category = host_category(trace, event, steps)) add(*category, event);
  for (const DeviceEvent& event : trace.device) add(device_category(trace, event), event);
  std::array<Intervals, kCategories> active;
  for (size_t i = 0; i < kCategories; ++i) active[i] = merged(std::move(parts[i]));
  return active;
}

Breakdown break_down(const std::array<Intervals, kCategories>& active, Interval window) {
  Breakdown result;
  result.wall_ns = window.length_ns();
  Intervals left{window};
  for (size_t i = 0; i + 1 < kCategories; ++i) {
    const int64_t before = length_ns(left);
    left = difference(left, clipped(active[i], window));
    result.ns[i] = before - length_ns(left);
  }
  result.ns[static_cast<size_t>(Category::other)] = length_ns(left);
  return result;
}

}  // namespace trainopt::trace
