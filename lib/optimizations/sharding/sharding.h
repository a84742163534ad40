// How several ranks share a model: parallel.sharding_strategy.
#pragma once

#include "comm/config.h"
#include "optimizations/info.h"
#include "train/receipt.h"

namespace trainopt {
struct Plan;
}

namespace trainopt::sharding {

inline constexpr Info kInfo{"parallel.sharding_strategy", Exactness::same_math, 1e-4};

Outcome apply(Plan& plan, const ParallelConfig& config);

}  // namespace trainopt::sharding
