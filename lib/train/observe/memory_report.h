// What was found about memory in a run, as text and as JSON.
#pragma once

#include "base/json.h"
#include "train/memory_forecast.h"
#include "train/observe/step_trace.h"

#include <optional>
#include <string>

namespace trainopt {

/// "activations 640 MiB (stem 210 MiB, …), parameters 97 MiB, …", largest first.
std::string breakdown_text(const MemoryBreakdown& breakdown);
/// {parameters_bytes, …, other_bytes, units: [{unit, activations_bytes}]}
Json breakdown_json(const MemoryBreakdown& breakdown);

/// "812 MiB at the peak of step 2, in forward of layer1.0: activations 640 MiB (stem 210 MiB, …), parameters …"; empty
/// if nothing was recorded.
std::string memory_text(const MemoryPeak& peak);

/// By how much the forecast is above (or, if negative, below) what was measured, in % of the latter; null if nothing
/// was recorded or forecast.
std::optional<double> forecast_error_pct(const MemoryPeak& measured, const std::optional<MemoryForecast>& forecast);
/// "790 MiB in backward of layer1.0, 2.7 % below what was measured"; empty if nothing was recorded or forecast.
std::string forecast_receipt(const MemoryPeak& measured, const std::optional<MemoryForecast>& forecast);

/// {step, where, peak_bytes, parameters_bytes, …, other_bytes, units: [{unit, activations_bytes}], forecast_bytes,
/// forecast_error_pct, leaks: [{where, bytes_per_step, steps}], spikes: [{step, where, peak_bytes, usual_bytes,
/// grown_bytes}]}; null if nothing was recorded. Bytes of live tensors on this rank's device.
Json memory_json(const StepTrace& trace, const std::optional<MemoryForecast>& forecast);

}  // namespace trainopt
