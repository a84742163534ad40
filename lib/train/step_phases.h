// Labels and times the phases of a step: forward, backward and update.
#pragma once

#include "device/stream.h"
#include "metrics/record.h"

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace trainopt {

/// The times come from events on the current stream, which are read late: measuring waits for nothing.
class StepPhases {
 public:
  /// `replays`: forward and backward are recorded for a CUDA graph and replayed in one piece, so they are not timed.
  StepPhases(c10::Device device, bool replays) : device_(device), replays_(replays) {}

  /// Discards what was timed since the last move_to().
  void discard() { spans_.clear(); }
  /// Runs `work` as a part of the phase `metric` (forward_ms, backward_ms or update_ms), under a label of that name
  /// without the unit.
  void run(Metric metric, const std::function<void()>& work);
  /// Hands the times to the step's record, where those of one phase are summed.
  void move_to(PendingRecord& record);

 private:
  c10::Device device_;
  bool replays_;
  std::vector<std::pair<Metric, std::shared_ptr<EventSpan>>> spans_;
};

}  // namespace trainopt
