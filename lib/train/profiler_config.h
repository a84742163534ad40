// The section `profiler` of a recipe: which steps are profiled, and what is recorded of them. Names and meanings are
// those of torch.profiler.
#pragma once

#include "config/describe.h"

namespace trainopt {

enum class ProfiledActivity { cpu, gpu };
template <>
struct Choices<ProfiledActivity> {
  static constexpr std::array all = {Choice<ProfiledActivity>{"cpu", ProfiledActivity::cpu},
                                     Choice<ProfiledActivity>{"gpu", ProfiledActivity::gpu}};
};

struct ProfilerConfig {
  int64_t wait = 1, warmup = 1, active = 3, repeat = 1;
  std::vector<ProfiledActivity> activities{ProfiledActivity::cpu, ProfiledActivity::gpu};
  bool record_shapes = false, profile_memory = false, with_stack = false, with_flops = false, units = true;
  bool memory_snapshot = false;
};
template <class V>
void describe(V& v, ProfilerConfig& c) {
  v.field("wait", c.wait, "Steps before a recording begins.", in_range(0, 1e9));
  v.field("warmup", c.warmup, "Steps with the profiler on whose events are discarded: the first ones are slower.",
          in_range(0, 1e9));
  v.field("active", c.active, "Steps that are recorded.", in_range(1, 1e6));
  v.field("repeat", c.repeat, "How often wait, warmup and active are repeated; 0: until the run ends.",
          in_range(0, 1e9));
  v.field("activities", c.activities,
          "What is recorded. An empty list records no trace and only sets the labels, for Nsight Systems.");
  v.field("record_shapes", c.record_shapes, "Record the sizes of each operation's inputs.");
  v.field("profile_memory", c.profile_memory,
          "Record allocations and releases of memory; the loader's threads are then not recorded.");
  v.field("with_stack", c.with_stack,
          "Record where each operation was called: the path of labels and units around it. Needs units.");
  v.field("with_flops", c.with_flops, "Record what the FLOPs are computed from, which are the shapes.");
  v.field("memory_snapshot", c.memory_snapshot,
          "Record allocations and releases to the end of the run: writes memory/rank0.pickle for PyTorch's memory "
          "viewer, and names leaks and spikes.");
  v.field("units", c.units, "Label the forward and backward of each of the model's units.");
}

}  // namespace trainopt
