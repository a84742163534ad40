// How several ranks divide a model: parallel.sharding_strategy.
#pragma once

#include "comm/config.h"
#include "train/receipt.h"

namespace trainopt {
struct Plan;
}

namespace trainopt::sharding {

Outcome apply(Plan& plan, const ParallelConfig& config);

}  // namespace trainopt::sharding
