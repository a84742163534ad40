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
  if (config.async_updates.staleness > 0) return "during the next step, whose update they are for";
  return config.overlap_comm ? "while backward goes on" : "after backward";
}

const char* what_each_has(ShardingStrategy strategy) {
  switch (strategy) {
    case ShardingStrategy::none:
      return "the whole model";
    case ShardingStrategy::zero1:
      return "a share of the optimizer's state";
    case ShardingStrategy::zero2:
      return "a share of gradients and optimizer's state";
    case ShardingStrategy::zero3:
      return "a share of parameters, gradients and optimizer's state";
  }
  return "";
}

}  // namespace

Outcome apply(Plan& plan, const ParallelConfig& config) {
  const int64_t ranks = plan.position.ranks;
  if (ranks == 1) return Outcome::none("there is one rank: nothing to share or to send");
  const ShardingStrategy strategy = config.sharding_strategy;
  if (strategy == ShardingStrategy::none)
    plan.parameters.fill(kBy, "all on every rank", [config](const BuildContext& context) {
      return config.async_updates.staleness > 0 ? make_stale_parameters(context, config)
                                                : make_replicated_parameters(context, config);
    });
  else
    plan.parameters.fill(kBy, "a share on each rank",
                         [config](const BuildContext& context) { return make_sharded_parameters(context, config); });
  if (config.sync_batch_norm)
    plan.batch_norm.fill("parallel.sync_batch_norm", "over the samples of all ranks",
                         [](const BuildContext& context) { return make_sync_batch_norm(*context.communicator); });
  return Outcome::applied(fmt::format("{}: each of {} ranks has {}; gradients are summed {}{}", strategy_name(strategy),
                                      ranks, what_each_has(strategy), when(config),
                                      config.sync_batch_norm ? "; batch-norm sees the samples of all ranks" : ""),
                          sharding_receipt(plan, config));
}

}  // namespace trainopt::sharding
