// Why a number is null in every record of a run.
#pragma once

#include "metrics/hardware/gpu_probe.h"
#include "train/plan.h"

#include <bitset>

namespace trainopt {

/// A reason for each metric that is null in every record: telemetry's own if it has one, otherwise one that follows
/// from the plan.
Reasons why_not_measured(const Plan& plan, const std::bitset<kMetricCount>& recorded, const Reasons& telemetry);

}  // namespace trainopt
