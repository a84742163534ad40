// What a trainer does for a MemoryRecorder, if it has one. Also counts page faults.
#pragma once

#include "train/memory_findings.h"

#include <memory>

namespace trainopt {

class Model;
class ParameterStore;
struct StepTrace;

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
