// The part of a printed plan that concerns several ranks.
#pragma once

#include "base/json.h"
#include "train/plan.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// A table: what each sharding strategy would send and hold. Only with several ranks.
std::string sharding_text(const Plan& plan);
/// The same numbers; empty with one rank.
Json sharding_json(const Plan& plan);
/// What parallel.check_replicas_every does here.
std::string replicas_text(const Plan& plan);

/// Why parallel.nccl has no effect on this plan; nullopt if it sets nothing or NCCL is used.
std::optional<std::string> why_no_nccl(const Plan& plan);
/// The variables that parallel.nccl sets for this plan, as "NCCL_ALGO=Ring"; empty without NCCL.
std::vector<std::string> nccl_variables_of(const Plan& plan);

}  // namespace trainopt
