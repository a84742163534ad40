// Communication and memory costs of each sharding strategy, by formula (Rajbhandari et al. 2020, "ZeRO", sections 5 and
// 7; hybrid: Zhao et al. 2023, "PyTorch FSDP", section 3.2.2). The plan prints them, and a run's receipt compares them
// with measurements.
#pragma once

#include "comm/config.h"

#include <cstdint>
#include <string>

namespace trainopt {

struct ShardedModel {
  int64_t parameters = 0;           ///< number of values
  int64_t bfloat16_parameters = 0;  ///< the values held as bfloat16, and so are their gradients; the others are float32
  double states = 0;                ///< optimizer values per parameter: 1 with momentum, 2 with Adam
  int64_t ranks = 1, local_ranks = 1;  ///< the numbers of ranks in the job and on each of its machines
  int64_t micro_batches = 1;
  int64_t wire_bytes_each = 4;  ///< bytes per gradient value in the exchange, unless it has fewer
  bool late_updates = false;    ///< the previous step's sums are also held, in the exchange's type
};

struct ShardingCosts {
  double sent_bytes = 0;    ///< what each rank sends per step, lower bound
  double across_bytes = 0;  ///< the part sent to other machines; without hybrid the share of a ring through all ranks
  double parameter_bytes = 0, gradient_bytes = 0,
         optimizer_bytes = 0;  ///< what each rank holds between steps (gradients: at the update)
};

/// Excludes padding to equal shares and temporarily gathered tensors.
ShardingCosts sharding_costs(ShardingStrategy strategy, const ShardedModel& model);

/// What a strategy is for these ranks: hybrid on one machine is zero3.
ShardingStrategy strategy_on(const RankPosition& position, ShardingStrategy strategy);

/// "DDP", "ZeRO-2"
std::string strategy_name(ShardingStrategy strategy);

}  // namespace trainopt
