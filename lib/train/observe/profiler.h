// The recipe's `profiler`: traces of a few steps, written by libtorch's profiler.
#pragma once

#include "metrics/record.h"
#include "train/config.h"

#include <cstdint>
#include <string_view>

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

// Labels for the forward and backward of each unit of a model.

class Model;

// Each label is one of these, followed by the unit's name.
inline constexpr std::string_view kUnitLabel = "unit::", kUnitBackwardLabel = "unit_backward::";

/// Wraps every unit, so that its forward and its backward each run under a label. Computes nothing else. Call after all
/// other wrappers, whose work the labels then cover. Does nothing if they are the outermost wrappers already.
void label_units(Model& model);

}  // namespace trainopt
