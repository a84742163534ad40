#include "optimizations/sharding/sharding.h"

#include "base/error.h"
#include "base/units.h"
#include "comm/communicator.h"
#include "comm/sharding_costs.h"
#include "config/load.h"
#include "device/tensor.h"
#include "optimizations/sharding/replicated_parameters.h"
#include "optimizations/sharding/sharded_parameters.h"
#include "optimizations/sharding/sync_batch_norm.h"
#include "train/plan.h"

#include <array>
#include <cmath>
#include <set>

namespace trainopt {
namespace {

constexpr const char* kKey = "parallel.sharding_strategy";
constexpr double kMaxRelativeError = 0.05;  // shares are padded, and batch-norm statistics are sent too

bool near(double measured, double formula) { return std::abs(measured - formula) <= kMaxRelativeError * formula; }

/// What a step of several ranks sent and held in memory, compared with the formulas.
MakeReceipt sharding_receipt(const Plan& plan, const ParallelConfig& config) {
  const ShardingCosts formula =
      sharding_costs(config.sharding_strategy, sharded_model(plan, config, plan.stages.replica));
  const bool hybrid = config.sharding_strategy == ShardingStrategy::hybrid;
  return [formula, hybrid](const StepTrace& seen) {
    if (seen.step == 0)
      return Receipt{.observed = "no step was observed", .effective = false, .reason = "the run was too short"};
    const auto text = [](const char* what, double measured, double by_formula) {
      return fmt::format("{} {} ({})", what, human_bytes(measured), human_bytes(by_formula));
    };
    const std::string sent = hybrid ? text("sent inside the machine", seen.sent_bytes - seen.across_bytes,
                                           formula.sent_bytes - formula.across_bytes) +
                                          text(", to other machines", seen.across_bytes, formula.across_bytes)
                                    : text("sent", seen.sent_bytes, formula.sent_bytes);
    const bool as_formula = near(seen.sent_bytes, formula.sent_bytes) &&
                            (!hybrid || near(seen.across_bytes, formula.across_bytes)) &&
                            near(static_cast<double>(seen.parameter_bytes), formula.parameter_bytes) &&
                            near(static_cast<double>(seen.gradient_bytes), formula.gradient_bytes) &&
                            near(static_cast<double>(seen.optimizer_bytes), formula.optimizer_bytes);
    return Receipt{
        .observed = fmt::format("per rank, measured (predicted): {}, {}, {}, {}", sent,
                                text("parameters", static_cast<double>(seen.parameter_bytes), formula.parameter_bytes),
                                text("gradients", static_cast<double>(seen.gradient_bytes), formula.gradient_bytes),
                                text("optimizer", static_cast<double>(seen.optimizer_bytes), formula.optimizer_bytes)),
        .effective = true,
        .reason = as_formula ? "" : "measured sizes differ from the predicted ones"};
  };
}

/// Throws UserError if this machine has one rank only, or if the ranks do not follow each other machine after machine,
/// as many on each.
void require_machines(const RankPosition& position) {
  if (position.local_ranks == 1)
    throw UserError(
        fmt::format("{}: hybrid divides the model among the ranks of a machine, but this machine has only 1 of the {} "
                    "ranks; use zero3 or none",
                    kKey, position.ranks));
  if (position.ranks % position.local_ranks != 0)
    throw UserError(fmt::format("{}: hybrid needs the same number of ranks on every machine, but this one has {} of {}",
                                kKey, position.local_ranks, position.ranks));
  if (position.rank % position.local_ranks != position.local_rank)
    throw UserError(
        fmt::format("{}: hybrid needs ranks that follow each other machine after machine, but rank {} is number {} of "
                    "{} on its machine",
                    kKey, position.rank, position.local_rank + 1, position.local_ranks));
}

/// A machine sees only its own ranks, so all tell each other how many they are.
void require_equal_machines(Communicator& job) {
  const std::vector<double> counts = job.gather(std::array{static_cast<double>(job.position().local_ranks)});
  for (size_t rank = 1; rank < counts.size(); ++rank)
    if (counts[rank] != counts[0])
      throw UserError(
          fmt::format("{}: hybrid needs the same number of ranks on every machine: {} on that of rank 0, {} on that of "
                      "rank {}",
                      kKey, counts[0], counts[rank], rank));
}

}  // namespace

void broadcast_state(const Model& model, Communicator& communicator) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : model.state())
    communicator.broadcast(tensor.detach().as_strided({tensor.numel()}, {1}), 0)
        ->wait();               // in memory order, whatever the layout
  communicator.take_traffic();  // resets the count: this traffic belongs to no step
}

MachineGroups connect_machines(Communicator& job) {
  const RankPosition& position = job.position();
  require_machines(position);
  require_equal_machines(job);
  std::vector<int64_t> here, alike;
  const int64_t first = position.rank - position.local_rank;
  for (int64_t rank = first; rank < first + position.local_ranks; ++rank) here.push_back(rank);
  for (int64_t rank = position.local_rank; rank < position.ranks; rank += position.local_ranks) alike.push_back(rank);
  return {.inside = job.among(here), .across = job.among(alike)};
}

}  // namespace trainopt

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
  if (const auto& layers = plan.model.layers; config.sync_batch_norm && layers.other_batch_norms > 0)
    throw UserError(fmt::format(
        "parallel.sync_batch_norm reaches {} of the program's {} batch-norms, so its statistics would be of "
        "two kinds; remove this key (trainopt model show says why)",
        layers.batch_norms, layers.batch_norms + layers.other_batch_norms));
  if (config.sync_batch_norm && plan.model.layers.batch_norms == 0)
    throw UserError(
        fmt::format("parallel.sync_batch_norm: the {} has no batch-norm; remove this key", plan.model.noun()));
  if (config.sync_batch_norm)
    plan.operations.batch_norm.fill(
        "parallel.sync_batch_norm", "statistics over all ranks",
        [](const BuildContext& context) { return make_sync_batch_norm(*context.replicas); });
  return Outcome::applied(
      fmt::format("{}{}: each of {} ranks holds {}; gradients are summed {}{}", strategy_name(strategy),
                  machines_text(asked.sharding_strategy, plan.position), ranks, shard_description(strategy),
                  when(config), config.sync_batch_norm ? "; batch-norm statistics cover all ranks" : ""),
      sharding_receipt(plan, config));
}

namespace {

PlannedSwitch wrap_entry(const WrapConfig& wrap, bool has_effect) {
  const std::string size = fmt::format("consecutive units of together {} parameters", with_commas(wrap.min_parameters));
  Outcome outcome =
      has_effect
          ? Outcome::applied(
                fmt::format("{} are gathered at once", wrap.policy == WrapPolicy::size ? size : "single units"),
                [](const StepTrace& seen) {
                  const auto groups = static_cast<int64_t>(seen.count(kWrap));
                  return Receipt{.observed = fmt::format("the model is gathered in {}", counted(groups, "group")),
                                 .effective = groups > 0};
                })
          : Outcome::none("there is only one rank, so nothing is gathered");
  return {kWrap, fmt::format("{{policy: {}, min_parameters: {}}}", word_of(wrap.policy), wrap.min_parameters),
          std::move(outcome)};
}

PlannedSwitch late_entry(const AsyncUpdatesConfig& late, bool has_effect) {
  Outcome outcome =
      has_effect ? Outcome::applied("each update has the gradients of the step before",
                                    [](const StepTrace& seen) {
                                      const auto updates = static_cast<int64_t>(seen.count(kAsyncUpdates));
                                      return Receipt{.observed = fmt::format("{} had the gradients of the step before",
                                                                             counted(updates, "update")),
                                                     .effective = updates > 0,
                                                     .reason = updates > 0 ? "" : "the run had a single step"};
                                    })
                 : Outcome::none("there is only one rank, so no gradients are exchanged");
  return {kAsyncUpdates, fmt::format("{{staleness: {}}}", late.staleness), std::move(outcome)};
}

/// The keys with values of their own that take several replicas, each as a switch without effect.
void add_unused_keys(const RankPosition& position, const ParallelConfig& config, std::vector<PlannedSwitch>& parts) {
  // These have entries or notes of their own; a pipeline's ranks also wait for each other through the backend.
  std::set<std::string> skipped = {"sharding_strategy", "pipeline", "wrap", "async_updates", "nccl"};
  if (position.ranks > 1) skipped.insert({"backend", "timeout"});
  const Json standard = to_json(ParallelConfig()), values = to_json(config);
  for (const auto& [key, value] : values.items())
    if (!skipped.contains(key) && value != standard.at(key))
      parts.push_back({"parallel." + key, value.is_string() ? value.get<std::string>() : value.dump(),
                       Outcome::none(position.ranks > 1 ? "there is only one replica, so nothing is exchanged"
                                                        : "there is only one rank, so nothing is exchanged")});
}

}  // namespace

std::vector<PlannedSwitch> parts_of(const Plan& plan, const ParallelConfig& config) {
  const bool several = plan.stages.replica.ranks > 1;
  std::vector<PlannedSwitch> parts;
  if (!(config.wrap == WrapConfig())) parts.push_back(wrap_entry(config.wrap, several));
  if (config.async_updates.staleness > 0) parts.push_back(late_entry(config.async_updates, several));
  if (!several) add_unused_keys(plan.position, config, parts);
  return parts;
}

}  // namespace trainopt::sharding
