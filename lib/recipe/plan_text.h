// A plan as people and programs read it.
#pragma once

#include "base/json.h"
#include "train/plan.h"

#include <string>

namespace trainopt {

/// Several lines: what will run where, how data flows, what fills each slot, and what each switch does here or why it
/// does nothing.
std::string plan_text(const Plan& plan);
Json plan_json(const Plan& plan);

}  // namespace trainopt
