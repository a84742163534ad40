// Slot of the trainer for what watches whole steps from outside.
#pragma once

#include "metrics/record.h"

#include <cstdint>

namespace trainopt {

/// The plain part profiles nothing.
class StepProfiler {
 public:
  virtual ~StepProfiler() = default;
  /// Before the first work of `step`, which counts from 1. Returns how the step is profiled.
  virtual Profiling begin_step(int64_t /*step*/) { return Profiling::none; }
  /// After the last work of the step has been queued. May write a trace: the time counts towards no step.
  virtual void end_step() {}
  /// After the last step of this process. Must be called before the communicator is gone.
  virtual void finish() {}
};

}  // namespace trainopt
