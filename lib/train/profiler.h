// The recipe's `profiler`: traces of a few steps, written by libtorch's profiler.
#pragma once

#include "metrics/record.h"
#include "train/profiler_config.h"

#include <cstdint>

namespace trainopt {

struct Plan;

/// How the `index`-th step of a process is profiled, counting from 0; as torch.profiler.schedule() decides.
Profiling profiling_of(const ProfilerConfig& config, int64_t index);
/// Steps until the last recording has ended; `repeat` must not be 0.
int64_t profiled_steps(const ProfilerConfig& config);

/// Fills the profiler's slot. Every rank writes RUN_DIR/trace/rank0-step3.json.gz for each recording, named after its
/// first step; rank 0 then merges those that it can read into RUN_DIR/trace/all-ranks-step3.json.gz. Throws UserError
/// if the plan's device does none of the activities.
void add_profiler(Plan& plan, const ProfilerConfig& config);

}  // namespace trainopt
