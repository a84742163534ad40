#include "recipe/plan_machine.h"

#include "base/units.h"
#include "comm/nccl_environment.h"
#include "data/formats/text/text_dataset.h"
#include "device/process.h"
#include "roofline/roofline.h"
#include "train/observe/memory_report.h"
#include "train/parameter_store.h"

namespace trainopt {
namespace {

std::string text_of_bytes(int64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

std::string capacity_text(const Plan& plan) {
  const bool shared = plan.device.is_cpu() && plan.position.local_ranks > 1;
  return fmt::format("{} {}",
                     plan.device.is_cuda() ? "the GPU's"
                     : shared              ? "this rank's share of the machine's memory,"
                                           : "the machine's",
                     text_of_bytes(plan.memory->capacity_bytes));
}

}  // namespace

std::string forecast_text(const Plan& plan) {
  const MemoryForecast& memory = *plan.memory;
  const int64_t bytes = memory.peak.breakdown.total();
  std::string text = fmt::format("{} forecast at the peak ({}): {}", text_of_bytes(bytes), memory.peak.where,
                                 breakdown_text(memory.peak.breakdown));
  if (memory.capacity_bytes == 0) return text;
  const double percent = 100.0 * static_cast<double>(bytes) / static_cast<double>(memory.capacity_bytes);
  return text + fmt::format("; {:.{}f} % of {}{}", percent, percent < 1 ? 2 : 0, capacity_text(plan),
                            memory.leaves_room() ? ""
                            : memory.fits()      ? ": leaves little room for everything else"
                                                 : ": does not fit");
}

Json forecast_json(const MemoryForecast& forecast) {
  Json json = {{"forecast_bytes", forecast.peak.breakdown.total()},
               {"capacity_bytes", forecast.capacity_bytes > 0 ? Json(forecast.capacity_bytes) : Json()},
               {"fits", forecast.fits()},
               {"at", forecast.peak.where},
               {"remedies", forecast.remedies}};
  json.update(breakdown_json(forecast.peak.breakdown));
  return json;
}

std::string why_it_does_not_fit(const Plan& plan) {
  const MemoryForecast& memory = *plan.memory;
  const std::string change = memory.remedies.empty()
                                 ? "no smaller batch and no switch would make it fit; use a smaller model or samples"
                                 : "this would fit: " + memory.remedies.front();
  return fmt::format("a training step does not fit into memory; {}: the forecast of the peak is {}, of {}", change,
                     text_of_bytes(memory.peak.breakdown.total()), capacity_text(plan));
}

namespace {

/// GPUs of the job, or machines whose ranks share the cores, or ranks that each have cores of their own.
double devices_of(const Plan& plan) {
  const RankPosition& position = plan.position;
  const bool share_cores = allowed_cores() >= position.local_ranks * plan.machine.cores;
  return static_cast<double>(plan.device.is_cpu() && share_cores ? position.ranks / position.local_ranks
                                                                 : position.ranks);
}

bool samples_differ(const DataPlan& data) {
  const auto text = data.is_text() ? data.text() : nullptr;
  return text && !text->uniform_tokens();
}

/// What moves less in a step may stay in the caches of any of today's devices.
constexpr double kCacheBytes = 64 << 20;

std::optional<double> memory_bound_pct(const std::vector<UnitLimit>& limits) {
  double all = 0, by_memory = 0, bytes = 0;
  for (const UnitLimit& limit : limits) {
    all += limit.least_ms();
    bytes += limit.bytes;
    if (limit.by_memory()) by_memory += limit.least_ms();
  }
  return all > 0 && bytes > kCacheBytes ? std::optional(100 * by_memory / all) : std::nullopt;
}

}  // namespace

std::string product_type(const Plan& plan) {
  switch (plan.tensor_format.compute_type) {
    case at::kBFloat16:
      return "bfloat16";
    case at::kHalf:
      return "float16";
    default:
      return plan.backend.rounds_products() && !plan.device.is_cpu() ? kRoundedFloat32 : "float32";
  }
}

std::vector<UnitLimit> unit_limits_of(const Plan& plan, const Roofline& measured) {
  const auto peak = measured.products.find(product_type(plan));
  if (peak == measured.products.end() || !measured.memory_bytes_per_s) return {};
  return unit_limits(plan.model.shapes(), plan.data.batch_size,
                     static_cast<int64_t>(c10::elementSize(plan.tensor_format.compute_type)),
                     {.flops_per_s = peak->second.flops_per_s, .bytes_per_s = *measured.memory_bytes_per_s});
}

PeakSpeed peak_of(const Plan& plan, const std::optional<Roofline>& measured) {
  PeakSpeed peak{.type = product_type(plan)};
  peak.measured = measured;
  if (measured) peak.operation_us = measured->operation_us;
  if (samples_differ(plan.data)) {
    peak.unknown = "the samples differ in length, and so in their number of multiplications";
    return peak;
  }
  if (!measured) {
    peak.unknown = "the peak of this machine was not measured with this version; trainopt roofline does";
    return peak;
  }
  const auto found = measured->products.find(peak.type);
  if (found == measured->products.end()) {
    peak.unknown = "no peak was measured for products of " + peak.type;
    return peak;
  }
  peak.flops_per_s = found->second.flops_per_s * devices_of(plan);
  peak.memory_bound_pct = memory_bound_pct(unit_limits_of(plan, *measured));
  if (const auto sheet = data_sheet_flops_per_s(plan.machine.gpu, peak.type); sheet && !plan.device.is_cpu())
    peak.by_data_sheet = found->second.flops_per_s / *sheet;
  return peak;
}

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
