#include "train/step_phases.h"

#include "base/error.h"
#include "device/memory_label.h"
#include "device/trace_range.h"

namespace trainopt {
namespace {

/// What a phase allocates is filed under; units are named by wrappers of their own.
MemoryUse memory_of(Metric metric) { return metric == Metric::forward_ms ? MemoryUse::activations : MemoryUse::other; }

const char* phase_label(Metric metric) {
  switch (metric) {
    case Metric::forward_ms:
      return "forward";
    case Metric::backward_ms:
      return "backward";
    default:
      TRAINOPT_CHECK(metric == Metric::update_ms);
      return "update";
  }
}

}  // namespace

void StepPhases::run(Metric metric, const std::function<void()>& work) {
  const TraceRange range(phase_label(metric));
  const MemoryScope memory({.use = memory_of(metric), .phase = phase_label(metric)});
  if (replays_ && metric != Metric::update_ms) return work();
  const auto span = std::make_shared<EventSpan>(device_);
  span->start.record(Stream::current(device_));
  work();
  span->end.record(Stream::current(device_));
  spans_.emplace_back(metric, span);
}

void StepPhases::move_to(PendingRecord& record) {
  for (auto& [metric, span] : spans_) record.add(metric, std::move(span));
  spans_.clear();
}

}  // namespace trainopt
