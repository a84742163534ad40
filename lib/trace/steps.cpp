#include "trace/steps.h"

#include "trace/events.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace trainopt::trace {
namespace {

/// N of "ProfilerStep#N".
std::optional<int64_t> step_number(std::string_view name) {
  if (!name.starts_with(kStepLabel)) return {};
  int64_t number = 0;
  const auto parsed = std::from_chars(name.data() + kStepLabel.size(), name.data() + name.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size()) return {};
  return number;
}

Interval whole_trace(const RankTrace& trace) {
  Interval window{INT64_MAX, INT64_MIN};
  const auto add = [&](const auto& event) {
    window.start_ns = std::min(window.start_ns, event.start_ns);
    window.end_ns = std::max(window.end_ns, event.end_ns);
  };
  for (const HostEvent& event : trace.host) add(event);
  for (const DeviceEvent& event : trace.device) add(event);
  return window;
}

uint32_t busiest_thread(const RankTrace& trace, const Nesting& nesting, size_t threads) {
  std::vector<int64_t> busy_ns(threads, 0);
  std::vector<uint8_t> decodes(threads, 0);
  for (size_t i = 0; i < trace.host.size(); ++i) {
    const HostEvent& event = trace.host[i];
    if (nesting.parent[i] == kNone && event.kind != HostKind::runtime) busy_ns[event.thread] += event.duration_ns();
    if (trace.name(event) == "loader::sample") decodes[event.thread] = 1;
  }
  uint32_t busiest = kNone;
  for (uint32_t i = 0; i < threads; ++i)
    if (decodes[i] == 0 && busy_ns[i] > 0 && (busiest == kNone || busy_ns[i] > busy_ns[busiest])) busiest = i;
  return busiest;
}

}  // namespace

Steps find_steps(const RankTrace& trace, const Nesting& nesting) {
  Steps steps;
  uint32_t threads = 0;
  for (const HostEvent& event : trace.host) {
    threads = std::max(threads, event.thread + 1);
    if (event.kind != HostKind::annotation) continue;
    const auto number = step_number(trace.name(event));
    if (!number || (steps.labelled && event.thread != steps.training_thread)) continue;
    steps.labelled = true;
    steps.training_thread = event.thread;
    steps.all.push_back({*number, {event.start_ns, event.end_ns}});
  }
  std::stable_sort(steps.all.begin(), steps.all.end(),
                   [](const Step& a, const Step& b) { return a.window.start_ns < b.window.start_ns; });
  if (!steps.labelled) {
    steps.training_thread = busiest_thread(trace, nesting, threads);
    steps.all.push_back({0, whole_trace(trace)});
  }
  steps.on_step.assign(threads, 0);
  if (steps.training_thread != kNone) steps.on_step[steps.training_thread] = 1;
  for (const HostEvent& event : trace.host) {
    const std::string_view name = trace.name(event);
    if (name.starts_with(kBackwardFunction) || name.starts_with(kUnitBackwardLabel)) steps.on_step[event.thread] = 1;
  }
  return steps;
}

}  // namespace trainopt::trace
