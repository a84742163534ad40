// What was found about memory in a run, as text and as JSON.
#pragma once

#include "base/json.h"
#include "train/step_trace.h"

#include <string>

namespace trainopt {

/// "activations 640 MiB (stem 210 MiB, …), parameters 97 MiB, …", largest first.
std::string breakdown_text(const MemoryBreakdown& breakdown);
/// {parameters_bytes, …, other_bytes, units: [{unit, activations_bytes}]}
Json breakdown_json(const MemoryBreakdown& breakdown);

/// "812 MiB at the peak of step 2, in forward of layer1.0: activations 640 MiB (stem 210 MiB, …), parameters …"; empty
/// if nothing was recorded.
std::string memory_text(const MemoryPeak& peak);

/// {step, where, peak_bytes, parameters_bytes, …, other_bytes, units: [{unit, activations_bytes}], leaks: [{where,
/// bytes_per_step, steps}], spikes: [{step, where, peak_bytes, usual_bytes, grown_bytes}]}; null if nothing was
/// recorded. Bytes of live tensors on this rank's device.
Json memory_json(const StepTrace& trace);

}  // namespace trainopt
