#include "trace/breakdown.h"

#include "trace/labels.h"

#include <optional>

namespace trainopt::trace {
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
