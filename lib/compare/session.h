// One rank's part of `compare`, `ablate` or `run --ceilings`: rank 0 measures, the other ranks serve its arms.
#pragma once

#include "compare/arms/arm_process.h"
#include "compare/arms/make_arm.h"
#include "run/environment.h"
#include "run/job_member.h"

#include <functional>
#include <span>
#include <string>

namespace trainopt {

/// What the ranks have to agree on before they measure.
struct MeasureJob {
  double timeout_s = 600;  ///< how long a rank waits for the others (parallel.timeout)
  std::string recipes;     ///< all that are measured, as text
};
/// The longest parallel.timeout and the text of all these recipes. Warns that their `debug` is ignored.
MeasureJob measure_job(std::span<const Recipe> recipes);

/// Comparisons switch the recipe's profiler off; says so if it is on in one of these recipes.
void warn_of_unused_profiler(std::span<const Recipe> recipes);
/// Throws UserError if two of these recipes differ, but only in their profiler and name.
void refuse_profiler_alone(std::span<const Recipe> recipes);

/// Gives rank 0 the arms and an explanation of their failures; returns its exit code.
using Measure = std::function<int(ArmFactory& arms, const Explain& explain)>;

/// Joins the other ranks, if there are any, and returns the exit code of the measurement. With a single rank a failure
/// is thrown; with several, the rank reports it and ends the process.
int run_measurement(const Launch& launch, const MeasureJob& job, const Environment& environment,
                    const Measure& measure);

/// What this rank's arms need. All functions refer to `member`.
ArmSite site_of(JobMember& member, const Machine& machine, const Environment& environment);
/// What a failure on this rank means; the others hear of it.
Failure failure_of(JobMember& member, const std::exception& error);

/// Runs the measurement on ranks that are connected already and have `machine`. Throws on failure.
int measure_with(JobMember& member, const Machine& machine, const Environment& environment, const Measure& measure);

}  // namespace trainopt
