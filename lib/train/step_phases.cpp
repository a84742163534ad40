#include "train/step_phases.h"

#include "base/error.h"
#include "device/trace_range.h"

namespace trainopt {
namespace {

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
