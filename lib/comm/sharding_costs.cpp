#include "comm/sharding_costs.h"

#include <algorithm>

namespace trainopt {

ShardingCosts sharding_costs(ShardingStrategy strategy, const ShardedModel& model) {
  const double n = static_cast<double>(model.ranks), local = static_cast<double>(model.local_ranks),
               share = (n - 1) / n, micros = static_cast<double>(model.micro_batches);
  const double weights = static_cast<double>(4 * model.parameters - 2 * model.bfloat16_parameters),
               states = 4 * static_cast<double>(model.parameters) * model.states;
  const double wire = std::min(static_cast<double>(model.wire_bytes_each * model.parameters), weights);
  const auto in_ring = [&](double sent, double parameters, double gradients, double optimizer) {
    return ShardingCosts{sent, model.ranks > model.local_ranks ? sent / local : 0, parameters, gradients, optimizer};
  };
  switch (strategy) {
    case ShardingStrategy::none:
      return in_ring(2 * wire * share, weights, weights + (model.late_updates ? wire : 0), states);  // one all-reduce
    case ShardingStrategy::zero1:
      return in_ring((wire + weights) * share, weights, weights, states / n);  // reduce-scatter, all-gather
    case ShardingStrategy::zero2:
      return in_ring((micros * wire + weights) * share, weights, weights / n,
                     states / n);  // each micro-batch's gradients are reduce-scattered
    case ShardingStrategy::zero3:
      return in_ring(micros * (wire + 2 * weights) * share, weights / n, weights / n,
                     states / n);  // weights are gathered for forward and again for backward
    case ShardingStrategy::hybrid: {
      const double machines = n / local, inside = micros * (wire + 2 * weights) * (local - 1) / local,
                   across = 2 * wire / local * (machines - 1) / machines;  // a share's gradients are all-reduced once
      return {inside + across, across, weights / local, weights / local, states / local};
    }
  }
  return {};
}

ShardingStrategy strategy_on(const RankPosition& position, ShardingStrategy strategy) {
  return strategy == ShardingStrategy::hybrid && position.one_machine() ? ShardingStrategy::zero3 : strategy;
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
    case ShardingStrategy::hybrid:
      return "hybrid ZeRO-3";
  }
  return "";
}

}  // namespace trainopt
