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
  /// Whether a recording ends with the running step, so that end_step() writes a trace, which takes a while.
  virtual bool ends_recording() const { return false; }
  /// After the last work of the step. The time that it takes counts towards no step.
  virtual void end_step() {}
  /// After the last step of this process. Must be called before the communicator is gone.
  virtual void finish() {}
};

}  // namespace trainopt
