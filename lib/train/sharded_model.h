// A plan's model as the formulas of comm/sharding_costs.h want it.
#pragma once

#include "comm/sharding_costs.h"

#include <c10/core/ScalarType.h>

#include <optional>

namespace trainopt {

struct Plan;

/// Of gradients on the wire; null: as they are.
std::optional<c10::ScalarType> wire_type(const ParallelConfig& config);

ShardedModel sharded_model(const Plan& plan, const ParallelConfig& config, int64_t ranks);

}  // namespace trainopt
