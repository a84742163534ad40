#include "comm/sharding_costs.h"

#include <algorithm>

namespace trainopt {

ShardingCosts sharding_costs(ShardingStrategy strategy, const ShardedModel& model) {
  const double n = static_cast<double>(model.ranks), share = (n - 1) / n,
               micros = static_cast<double>(model.micro_batches);
  const double weights = static_cast<double>(4 * model.parameters - 2 * model.bfloat16_parameters),
               states = static_cast<double>(4 * model.parameters * model.states);
  const double wire = std::min(static_cast<double>(model.wire_bytes_each * model.parameters), weights);
  switch (strategy) {
    case ShardingStrategy::none:
      return {2 * wire * share, weights, weights + (model.late_updates ? wire : 0), states};  // one all-reduce
    case ShardingStrategy::zero1:
      return {(wire + weights) * share, weights, weights, states / n};  // reduce-scatter, all-gather
    case ShardingStrategy::zero2:
      return {(micros * wire + weights) * share, weights, weights / n,
              states / n};  // each micro-batch's gradients are reduce-scattered
    case ShardingStrategy::zero3:
      return {micros * (wire + 2 * weights) * share, weights / n, weights / n,
              states / n};  // weights are gathered for forward and again for backward
  }
  return {};
}

std::string strategy_name(ShardingStrategy strategy) {
  switch (strategy) {
    case ShardingStrategy::none:
      return "DDP";
    case ShardingStrategy::zero1:
      return "ZeRO-1";
    case ShardingStrategy::zero2:
      return "ZeRO-2";
    case ShardingStrategy::zero3:
      return "ZeRO-3";
  }
  return "";
}

}  // namespace trainopt
