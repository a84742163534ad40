#include "optimizations/sharding/sharding.h"

#include "comm/sharding_costs.h"
#include "optimizations/sharding/machine_groups.h"
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
  return fmt::format("{} backward{}", config.overlap_comm ? "during" : "after",
                     config.sharding_strategy == ShardingStrategy::hybrid ? ", then over the machines" : "");
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
    case ShardingStrategy::hybrid:
      return "a share of the parameters, gradients and optimizer state";
  }
  return "";
}

/// What hybrid adds to the description.
std::string machines_text(ShardingStrategy asked, const RankPosition& position) {
  if (asked != ShardingStrategy::hybrid) return "";
  if (position.one_machine()) return ", which hybrid is on one machine";
  return fmt::format(", in copies on {} machines", position.ranks / position.local_ranks);
}

}  // namespace

Outcome apply(Plan& plan, const ParallelConfig& asked) {
  const int64_t ranks = plan.stages.replica.ranks;
  if (ranks == 1) return Outcome::none("there is only one rank, so there is nothing to shard, exchange or compare");
  ParallelConfig config = asked;
  const ShardingStrategy strategy = config.sharding_strategy = strategy_on(plan.position, asked.sharding_strategy);
  if (strategy == ShardingStrategy::hybrid) require_machines(plan.position);
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
  return Outcome::applied(
      fmt::format("{}{}: each of {} ranks holds {}; gradients are summed {}{}", strategy_name(strategy),
                  machines_text(asked.sharding_strategy, plan.position), ranks, shard_description(strategy),
                  when(config), config.sync_batch_norm ? "; batch-norm statistics cover all ranks" : ""),
      sharding_receipt(plan, config));
}

}  // namespace trainopt::sharding
