// The steps of a trace and the threads that run them.
#pragma once

#include "trace/events.h"
#include "trace/intervals.h"
#include "trace/nesting.h"

#include <cstdint>
#include <vector>

namespace trainopt::trace {

struct Step {
  int64_t number = 0;  ///< N of `ProfilerStep#N`
  Interval window;     ///< the annotation's; device work that outlasts it counts in later steps, or in none
};

struct Steps {
  std::vector<Step> all;             ///< in order of time; without annotations one step, the whole trace
  bool labelled = false;             ///< annotations label the steps
  uint32_t training_thread = kNone;  ///< the annotations' thread, otherwise the busiest that decodes no samples
  std::vector<uint8_t> on_step;      ///< per thread, 1: the training thread or one that runs backward functions

  bool runs_step(uint32_t thread) const { return thread < on_step.size() && on_step[thread] != 0; }
};

Steps find_steps(const RankTrace& trace, const Nesting& nesting);

}  // namespace trainopt::trace
