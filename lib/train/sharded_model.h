// A plan's model as input for the formulas of comm/sharding_costs.h.
#pragma once

#include "comm/rank_position.h"
#include "comm/sharding_costs.h"

#include <c10/core/ScalarType.h>

#include <optional>

namespace trainopt {

struct Plan;

/// Type to which gradients are converted for the exchange; null: unchanged.
std::optional<c10::ScalarType> wire_type(const ParallelConfig& config);

ShardedModel sharded_model(const Plan& plan, const ParallelConfig& config, const RankPosition& position);

}  // namespace trainopt
