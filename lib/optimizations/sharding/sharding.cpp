#include "optimizations/sharding/sharding.h"

#include "optimizations/sharding/replicated_parameters.h"
#include "optimizations/sharding/sharded_parameters.h"
#include "optimizations/sharding/sharding_receipt.h"
#include "optimizations/sharding/stale_parameters.h"
#include "optimizations/sharding/sync_batch_norm.h"
#include "train/plan.h"

namespace trainopt::sharding {
namespace {

constexpr const char* kBy = "parallel.sharding_strategy";

std::string when(const ParallelConfig& config) {
  if (config.async_updates.staleness > 0) return "during the next step, and applied at its end";
  return config.overlap_comm ? "during backward" : "after backward";
}

const char* shard_description(ShardingStrategy strategy) {
  switch (strategy) {
    case ShardingStrategy::none:
      return "the whole model";
    case ShardingStrategy::zero1:
      return "a share of the optimizer state";
    case ShardingStrategy::zero2:
      return "a share of the gradients and optimizer state";
    case ShardingStrategy::zero3:
      return "a share of the parameters, gradients and optimizer state";
  }
  return "";
}

}  // namespace

Outcome apply(Plan& plan, const ParallelConfig& config) {
  const int64_t ranks = plan.stages.replica.ranks;
  if (ranks == 1) return Outcome::none("there is only one rank, so there is nothing to shard, exchange or compare");
  const ShardingStrategy strategy = config.sharding_strategy;
  if (strategy == ShardingStrategy::none)
    plan.parameters.fill(kBy, "replicated on every rank", [config](const BuildContext& context) {
      return config.async_updates.staleness > 0 ? make_stale_parameters(context, config)
                                                : make_replicated_parameters(context, config);
    });
  else
    plan.parameters.fill(kBy, "sharded, one share per rank",
                         [config](const BuildContext& context) { return make_sharded_parameters(context, config); });
  if (config.sync_batch_norm)
    plan.batch_norm.fill("parallel.sync_batch_norm", "statistics over all ranks",
                         [](const BuildContext& context) { return make_sync_batch_norm(*context.replicas); });
  return Outcome::applied(fmt::format("{}: each of {} ranks holds {}; gradients are summed {}{}",
                                      strategy_name(strategy), ranks, shard_description(strategy), when(config),
                                      config.sync_batch_norm ? "; batch-norm statistics cover all ranks" : ""),
                          sharding_receipt(plan, config));
}

}  // namespace trainopt::sharding
