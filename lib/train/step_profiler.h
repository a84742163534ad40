// Slot of the trainer for what watches whole steps from outside.
#pragma once

#include "metrics/record.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace trainopt {

struct StepTrace;

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
  /// After end_step(): adds what was seen so far of the observed step.
  virtual void report(StepTrace&) const {}
  /// In which operation the non-finite values of `step`, one of the last few, began: the end of a sentence. Empty if
  /// nobody looked. Every rank must call it, because the values may have begun on another one.
  virtual std::string where_nonfinite_began(int64_t /*step*/) { return {}; }
  /// After the last step of this process. Must be called before the communicator is gone.
  virtual void finish() {}
};

/// A profiler around another one. Derived classes override some functions and call them here too.
class WrappedProfiler : public StepProfiler {
 public:
  explicit WrappedProfiler(std::unique_ptr<StepProfiler> inner) : inner_(std::move(inner)) {}
  Profiling begin_step(int64_t step) override { return inner_->begin_step(step); }
  bool ends_recording() const override { return inner_->ends_recording(); }
  void end_step() override { inner_->end_step(); }
  void report(StepTrace& trace) const override { inner_->report(trace); }
  std::string where_nonfinite_began(int64_t step) override { return inner_->where_nonfinite_began(step); }
  void finish() override { inner_->finish(); }

 private:
  std::unique_ptr<StepProfiler> inner_;
};

}  // namespace trainopt
