#include "recipe/plan_peak.h"

#include "data/formats/text/text_dataset.h"
#include "device/process.h"
#include "roofline/data_sheet.h"

namespace trainopt {
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
  ModelConfig config = plan.model.config;
  config.weights.reset();
  return unit_limits(make_model(config, plan.model.input, at::kMeta, 0), plan.data.batch_size,
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

}  // namespace trainopt
