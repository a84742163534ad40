#include "recipe/plan_ranks.h"

#include "base/counted.h"
#include "base/units.h"
#include "comm/nccl_environment.h"
#include "train/parameter_store.h"

namespace trainopt {
namespace {

/// The cost of each sharding strategy; empty with one rank.
std::vector<std::pair<ShardingStrategy, ShardingCosts>> sharding_alternatives(const Plan& plan) {
  std::vector<std::pair<ShardingStrategy, ShardingCosts>> all;
  const RankPosition& position = plan.stages.replica;
  if (position.ranks == 1) return all;
  std::vector strategies{ShardingStrategy::none, ShardingStrategy::zero1, ShardingStrategy::zero2,
                         ShardingStrategy::zero3};
  if (!position.one_machine() && position.local_ranks > 1) strategies.push_back(ShardingStrategy::hybrid);
  for (const auto strategy : strategies)
    all.emplace_back(strategy, sharding_costs(strategy, sharded_model(plan, plan.parallel, position)));
  return all;
}

}  // namespace

std::string sharding_text(const Plan& plan) {
  const RankPosition& position = plan.stages.replica;
  const auto column = [&](const std::string& text) {
    return position.one_machine() ? "" : fmt::format(" {:>18}", text);
  };
  std::string text =
      fmt::format("sharding over {} ranks{}, predicted for each rank\n", position.ranks,
                  position.one_machine() ? "" : fmt::format(" on {} machines", position.ranks / position.local_ranks));
  text += fmt::format("  {:<18} {:>16}{} {:>16} {:>16} {:>16}\n", "", "sent per step", column("to other machines"),
                      "parameters", "gradients", "optimizer state");
  for (const auto& [strategy, costs] : sharding_alternatives(plan))
    text += fmt::format("  {:<18} {:>16}{} {:>16} {:>16} {:>16}{}\n", strategy_name(strategy),
                        human_bytes(costs.sent_bytes), column(human_bytes(costs.across_bytes)),
                        human_bytes(costs.parameter_bytes), human_bytes(costs.gradient_bytes),
                        human_bytes(costs.optimizer_bytes),
                        strategy == strategy_on(position, plan.parallel.sharding_strategy) ? "  this recipe" : "");
  return text;
}

Json sharding_json(const Plan& plan) {
  Json json = Json::object();
  for (const auto& [strategy, costs] : sharding_alternatives(plan))
    json[std::string(word_of(strategy))] = {{"sent_bytes", costs.sent_bytes},
                                            {"across_bytes", costs.across_bytes},
                                            {"parameter_bytes", costs.parameter_bytes},
                                            {"gradient_bytes", costs.gradient_bytes},
                                            {"optimizer_bytes", costs.optimizer_bytes}};
  return json;
}

std::string replicas_text(const Plan& plan) {
  if (plan.position.ranks == 1) return "not compared: there is only one rank";
  if (plan.stages.replica.ranks == 1) return "not compared: no other rank has a copy";
  return fmt::format("weights compared over the ranks every {}, before checkpoints and at the end; each time reads {}",
                     counted(plan.parallel.check_replicas_every, "step"),
                     human_bytes(static_cast<double>(plan.model.parameter_bytes())));
}

std::optional<std::string> why_no_nccl(const Plan& plan) {
  if (nccl_variables(plan.parallel.nccl).empty()) return std::nullopt;
  if (plan.device.is_cpu()) return "this plan runs on the CPU, where ranks communicate over Gloo";
  if (plan.position.ranks == 1) return "there is only one rank, so nothing is exchanged";
  return std::nullopt;
}

std::vector<std::string> nccl_variables_of(const Plan& plan) {
  std::vector<std::string> all;
  if (plan.device.is_cpu() || plan.position.ranks == 1) return all;
  for (const auto& [name, value] : nccl_variables(plan.parallel.nccl)) all.push_back(name + "=" + value);
  return all;
}

}  // namespace trainopt
