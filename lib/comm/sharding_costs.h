// What each way of dividing a model among ranks costs, by formula (Rajbhandari et al. 2020, "ZeRO", sections 5 and 7):
// the plan prints it, and a run's receipt compares it with what was measured.
#pragma once

#include "comm/config.h"

#include <cstdint>
#include <string>

namespace trainopt {

struct ShardedModel {
  int64_t parameters = 0;  ///< numbers, float32
  int64_t states = 0;      ///< optimizer numbers for each: 1 with momentum, 2 with Adam
  int64_t ranks = 1, micro_batches = 1;
  int64_t wire_bytes_each = 4;  ///< of a gradient on its way
  bool late_updates = false;    ///< the sums of the step before are held beside the gradients, as they travel
};

struct ShardingCosts {
  double sent_bytes = 0;  ///< by each rank in a step, at least
  double parameter_bytes = 0, gradient_bytes = 0,
         optimizer_bytes = 0;  ///< held by each rank between steps (gradients: at the update)
};

/// Without the padding to whole shares, and without what is gathered for a moment.
ShardingCosts sharding_costs(ShardingStrategy strategy, const ShardedModel& model);

/// "DDP", "ZeRO-2"
std::string strategy_name(ShardingStrategy strategy);

}  // namespace trainopt
