// The parts of a printed plan that depend on the machine: memory, peak speed, and what several ranks send and hold.
#pragma once

#include "base/json.h"
#include "roofline/roofline.h"
#include "roofline/unit_limits.h"
#include "train/plan.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt {

// Memory. These functions read plan.memory, which must be set.

/// "9.3 GiB forecast at the peak (backward of layer1.0): activations 8.1 GiB, …; 12 % of the GPU's 80 GiB"
std::string forecast_text(const Plan& plan);
/// {forecast_bytes, capacity_bytes (null: not known), fits, at, parameters_bytes, …, units, remedies}
Json forecast_json(const MemoryForecast& forecast);
/// One sentence for a plan that does not fit, with the first remedy.
std::string why_it_does_not_fit(const Plan& plan);

// Speed: the peak that a plan's speed is compared with.

/// The element type of the plan's products: a key of Roofline::products.
std::string product_type(const Plan& plan);

/// The least time of each unit, for a micro-batch on one device; empty if the machine's peaks for it are not known.
std::vector<UnitLimit> unit_limits_of(const Plan& plan, const Roofline& measured);

/// The peak of all devices of the job, from what was measured on this one; `measured`: null if nothing was.
PeakSpeed peak_of(const Plan& plan, const std::optional<Roofline>& measured);

// Several ranks.

/// A table: what each sharding strategy would send and hold. Only with several ranks.
std::string sharding_text(const Plan& plan);
/// The numbers of sharding_text(); empty with one rank.
Json sharding_json(const Plan& plan);
/// What parallel.check_replicas_every does here.
std::string replicas_text(const Plan& plan);

/// Why parallel.nccl has no effect on this plan; nullopt if it sets nothing or NCCL is used.
std::optional<std::string> why_no_nccl(const Plan& plan);
/// The variables that parallel.nccl sets for this plan, as "NCCL_ALGO=Ring"; empty without NCCL.
std::vector<std::string> nccl_variables_of(const Plan& plan);

}  // namespace trainopt
