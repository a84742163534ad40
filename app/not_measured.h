// Why a number is null in every record of a run.
#pragma once

#include "metrics/gpu_probe.h"
#include "train/plan.h"

#include <bitset>

namespace trainopt {

/// A reason for each metric that no record has: telemetry's own where it has one, otherwise what the plan says.
Reasons why_not_measured(const Plan& plan, const std::bitset<kMetricCount>& recorded, const Reasons& telemetry);

}  // namespace trainopt
