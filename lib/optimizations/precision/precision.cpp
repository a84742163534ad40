#include "optimizations/precision/precision.h"

#include "base/units.h"
#include "model/chosen_parameters.h"
#include "optimizations/info.h"
#include "optimizations/precision/stochastic_rounding.h"
#include "train/plan.h"

namespace trainopt::precision {
namespace {

/// Vectors (norms, biases) stay float32: they are few values, which kernels read as float32.
bool can_be_bfloat16(const at::Tensor& parameter) { return parameter.dim() >= 2; }

const char* how(const Config& config) { return config.stochastic_rounding ? "stochastically" : "to nearest"; }

int64_t values_of(const TracedTensor& tensor) {
  int64_t values = 1;
  for (const int64_t size : tensor.sizes) values *= size;
  return values;
}

Receipt receipt(const StepTrace& seen, const Config& config, int64_t all_values) {
  int64_t tensors = 0, values = 0;
  for (const auto& [operation, times] : seen.operations)
    if (operation.name == kWeightRoundingLabel)
      if (const TracedTensor* rounded = operation.tensor(0)) tensors += times, values += times * values_of(*rounded);
  const int64_t in_float32 = 4 * all_values, saved = in_float32 - seen.parameter_bytes;
  const bool effective = tensors > 0 && saved > 0;
  return {.observed = fmt::format(
              "{} of {} rounded {} to bfloat16, {} of {} values; weights take {} instead of {}", tensors,
              counted(seen.parameters, "parameter tensor"), how(config), with_commas(values), with_commas(all_values),
              human_bytes(static_cast<double>(seen.parameter_bytes)), human_bytes(static_cast<double>(in_float32))),
          .effective = effective,
          .reason = effective ? "" : "the step updated no bfloat16 weight"};
}

}  // namespace

void check(OptionChecks& checks, const Config&) {
  if (!checks.computes_in_bfloat16)
    checks.refuse("optimizations.precision",
                  "needs optimizations.amp: true, which computes in bfloat16; operations in another type would need a "
                  "copy of each weight in it, and no memory would be saved");
  if (checks.sharded)
    checks.refuse(
        "parallel.sharding_strategy",
        "zero1, zero2, zero3 and hybrid keep the parameters of a unit in one tensor, so they cannot differ in type; "
        "use none or remove optimizations.precision");
  if (checks.stale_updates)
    checks.refuse("parallel.async_updates.staleness",
                  "all gradients are sent in one tensor, so they cannot differ in type; remove it or "
                  "optimizations.precision");
  if (checks.sends_float32)
    checks.refuse("parallel.gradient_dtype",
                  "the gradients of bfloat16 weights are bfloat16 already; remove this key or optimizations.precision");
  checks.bfloat16_weights = true;
}

Outcome apply(Plan& plan, const Config& config) {
  const Model shapes = plan.model.shapes();
  const auto kept = chosen_parameters(shapes, config.keep_float32, "optimizations.precision.keep_float32");
  if (plan.tensor_format.compute_type != at::kBFloat16)
    return Outcome::none("this plan does not compute in bfloat16, so each operation would need a copy of its weights");
  const NamedTensors parameters = shapes.parameters();
  for (const auto& [name, parameter] : parameters) {
    if (!can_be_bfloat16(parameter) || kept.contains(name)) continue;
    plan.model.in_bfloat16.insert(name);
    plan.model.bfloat16_parameters += parameter.numel();
  }
  const int64_t values = plan.model.bfloat16_parameters;
  if (values == 0) return Outcome::none("keep_float32 names every parameter that could be bfloat16");
  if (config.stochastic_rounding)
    plan.rounding.fill("precision", "stochastic", [for_cpu = plan.device.is_cpu()](const BuildContext& context) {
      return make_stochastic_rounding(context.plan.seed, context.steps_done, for_cpu);
    });
  std::string what =
      fmt::format("{} of {} are bfloat16, {} of {} values, rounded {}: {} less for weights and as much for gradients",
                  plan.model.in_bfloat16.size(), counted(static_cast<int64_t>(parameters.size()), "parameter tensor"),
                  with_commas(values), with_commas(shapes.parameter_count()), how(config),
                  human_bytes(2.0 * static_cast<double>(values)));
  if (plan.data.accumulation > 1)
    what += fmt::format("; the gradients of {} are added in bfloat16",
                        counted(plan.data.accumulation, "micro-batch", "es"));
  return Outcome::applied(
      what, [config, all = shapes.parameter_count()](const StepTrace& seen) { return receipt(seen, config, all); });
}

}  // namespace trainopt::precision
