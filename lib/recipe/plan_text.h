// A plan as text for people and as JSON for programs.
#pragma once

#include "base/json.h"
#include "train/plan.h"

#include <string>

namespace trainopt {

/// Several lines: device, model, data, schedule, what fills each slot, and what each switch does here or why it has no
/// effect.
std::string plan_text(const Plan& plan);
Json plan_json(const Plan& plan);

}  // namespace trainopt
