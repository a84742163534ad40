#include "optimizations/sharding/sharding.h"

#include "optimizations/sharding/replicated_parameters.h"
#include "optimizations/sharding/sharding_receipt.h"
#include "train/plan.h"

namespace trainopt::sharding {
namespace {

constexpr const char* kBy = "parallel.sharding_strategy";

std::string when(const ParallelConfig& config) { return config.overlap_comm ? "while backward goes on" : "after backward"; }

}  // namespace

Outcome apply(Plan& plan, const ParallelConfig& config) {
  const int64_t ranks = plan.machine.place.ranks;
  if (ranks == 1) return Outcome::none("there is one rank: nothing to share or to send");
  plan.parameters.fill(kBy, "all on every rank", [config](const BuildContext& context) { return make_replicated_parameters(context, config); });
  return Outcome::applied(fmt::format("{}: each of {} ranks has the whole model; gradients are summed {}", strategy_name(config.sharding_strategy), ranks, when(config)),
                          sharding_receipt(plan, config));
}

}  // namespace trainopt::sharding
