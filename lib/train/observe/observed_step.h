// What watches a trainer's steps: one observed step, the times of its phases, the profiler and the memory recorder.
#pragma once

#include "device/stream.h"
#include "metrics/record.h"
#include "train/observe/memory_findings.h"
#include "train/observe/step_trace.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trainopt {

class Model;
class Optimizer;
class ParameterStore;

/// Fills a StepTrace during one step. Create it at the start of the step, with its backend settings in effect. Records
/// operations until destroyed.
class ObservedStep {
 public:
  ObservedStep(StepTrace& trace, const ParameterStore& parameters);
  /// Whether the step that starts is the one to observe: the process's second step, since the first includes one-off
  /// work, or its only step. `steps_taken`: steps of this process so far; `steps_left`: steps still to take. Also true
  /// of later steps, in case the second one failed.
  static bool observes(int64_t steps_taken, int64_t steps_left) { return steps_taken > 0 || steps_left <= 1; }
  /// Starts observing if it is and no step was observed before, otherwise returns null.
  static std::unique_ptr<ObservedStep> if_due(StepTrace& trace, const ParameterStore& parameters, int64_t steps_taken,
                                              int64_t steps_left);

  struct End {
    int64_t step = 0;                ///< the step that has ended
    const BatchSourceStats& loader;  ///< during the step
    const ParameterStore& parameters;
    const Optimizer& optimizer;
    int64_t gradient_bytes = 0;  ///< at the update, before gradients were cleared
  };
  /// Not called for a step that fails; its trace then has no step.
  void finish(const End& end);

 private:
  StepTrace& trace_;
  std::optional<StepObserver> observer_;  ///< set at the end of the constructor
};

// Labels and times the phases of a step: forward, backward and update.

/// The times come from events on the current stream, which are read late: measuring waits for nothing. On the meta
/// device nothing is timed.
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

// Slot of the trainer for what watches whole steps from outside.

/// The plain part profiles nothing.
class StepProfiler {
 public:
  virtual ~StepProfiler() = default;
  /// Call before the first work of `step`, which counts from 1. Returns how the step is profiled.
  virtual Profiling begin_step(int64_t /*step*/) { return Profiling::none; }
  /// Whether a recording ends with the running step, so that end_step() writes a trace, which takes a while.
  virtual bool ends_recording() const { return false; }
  /// Call after the last work of the step. The time that it takes counts towards no step.
  virtual void end_step() {}
  /// Adds what was seen so far of the observed step. Call after end_step().
  virtual void report(StepTrace&) const {}
  /// In which operation the non-finite values of `step`, one of the last few, began: the end of a sentence. Empty if
  /// nobody looked. Every rank must call it, because the values may have begun on another one.
  virtual std::string where_nonfinite_began(int64_t /*step*/) { return {}; }
  /// Call after the last step of this process, and before the communicator is gone.
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

// What a trainer does for a MemoryRecorder, if it has one. Also counts page faults.

class StepMemory {
 public:
  /// `recorder`: may be null, then only page faults are counted. `whole_run`: record until the end, and look for leaks
  /// and spikes; otherwise recording ends with the observed step.
  StepMemory(MemoryRecorder* recorder, bool whole_run) : recorder_(recorder), whole_run_(whole_run) {}

  /// Files what the units' forward allocates under their names, and names the unit whose backward runs. Call once,
  /// after all other wrappers. `snapshots`: where snapshots are written, without the name's end: "memory/rank0".
  void attach(Model& model, std::string snapshots);

  void begin_step(int64_t step);
  /// Files gradients as such, which only the store can tell from the rest of what backward allocates. Call it while
  /// they are there.
  void file_gradients(const ParameterStore& parameters);
  /// `observed`: this is the step whose peak the trace keeps.
  void end_step(int64_t step, bool observed, StepTrace& trace);
  /// When memory ran out in `step`: keeps its peak in the trace, and writes a snapshot if the whole run is recorded.
  void out_of_memory(int64_t step, c10::Device device, StepTrace& trace);
  /// At the end of the run: what has leaked in all of it.
  void finish(StepTrace& trace);

 private:
  void find_leaks(StepTrace& trace);

  MemoryRecorder* recorder_;
  bool whole_run_;
  std::string snapshots_;
  MemorySpikes spikes_;
  int64_t steps_ = 0, page_faults_at_start_ = 0;
};

}  // namespace trainopt
