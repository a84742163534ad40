// The peak that a plan's speed is compared with.
#pragma once

#include "roofline/roofline.h"
#include "roofline/unit_limits.h"
#include "train/plan.h"

#include <optional>
#include <string>

namespace trainopt {

/// The element type of the plan's products: a key of Roofline::products.
std::string product_type(const Plan& plan);

/// The least time of each unit, for a micro-batch on one device; empty if the machine's peaks for it are not known.
std::vector<UnitLimit> unit_limits_of(const Plan& plan, const Roofline& measured);

/// The peak of all devices of the job, from what was measured on this one; `measured`: null if nothing was.
PeakSpeed peak_of(const Plan& plan, const std::optional<Roofline>& measured);

}  // namespace trainopt
