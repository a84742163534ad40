#include "optimizations/activation_checkpointing/activation_checkpointing.h"

#include "base/counted.h"
#include "base/units.h"
#include "optimizations/activation_checkpointing/recomputed_unit.h"
#include "optimizations/option_checks.h"
#include "train/plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace trainopt::activation_checkpointing {
namespace {

/// The units whose names `wanted` has.
std::set<size_t> named_units(const Model& model, const std::vector<std::string>& wanted) {
  std::vector<std::string> names;
  for (const auto& unit : model.units()) names.push_back(unit->name());
  std::set<size_t> chosen;
  for (const std::string& name : wanted) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end())
      throw UserError(
          fmt::format("optimizations.activation_checkpointing.units: the model has no unit {}; its {} are {}", name,
                      counted(static_cast<int64_t>(names.size()), "unit"), fmt::join(names, ", ")));
    chosen.insert(static_cast<size_t>(found - names.begin()));
  }
  return chosen;
}

/// Every n-th block. The first and the last unit keep what they compute: they run once each, and little lies between
/// the last unit's forward and its backward.
std::set<size_t> every_nth_block(const Model& model, int64_t n) {
  std::set<size_t> chosen;
  int64_t block = 0;
  for (size_t unit = 1; unit + 1 < model.units().size(); ++unit)
    if (model.unit_flops()[unit] > 0 && ++block % n == 0) chosen.insert(unit);
  return chosen;
}

/// Parameters and buffers that the unit computes with, tied weights of other units included.
NamedTensors state_of(const Model& model, size_t unit) {
  NamedTensors state = model.unit_parameters(unit);
  for (const auto& entry : model.unit_state(unit))
    if (!entry.second.requires_grad()) state.push_back(entry);
  return state;
}

void wrap_units(Model& model, const std::set<size_t>& chosen, const Recomputation& how) {
  size_t unit = 0;
  model.wrap_units([&](std::unique_ptr<Unit> inner) {
    const size_t index = unit++;
    if (!chosen.contains(index)) return inner;
    return make_recomputed_unit(std::move(inner), state_of(model, index), how);
  });
}

Receipt receipt(const StepTrace& seen, bool on_gpu) {
  int64_t units = 0;
  double kept_bytes = 0, computed_bytes = 0, microseconds = 0;
  for (const auto& [operation, calls] : seen.operations) {
    if (operation.name != kRecomputedLabel) continue;
    const auto sum_of = [&](size_t i) { return static_cast<double>(calls * operation.number(i)); };
    units += calls;
    kept_bytes += sum_of(0), computed_bytes += sum_of(1), microseconds += sum_of(2);
  }
  if (units == 0)
    return {.observed = "no unit was computed again", .effective = false, .reason = "nothing ran backward"};
  // A GPU works later than the host that asks it to.
  const std::string time = on_gpu ? "" : fmt::format(", in {:.1f} ms", microseconds / 1e3);
  return {.observed = fmt::format("{} computed again in backward{}: {} of activations kept, {} not kept",
                                  counted(units, "unit"), time, human_bytes(kept_bytes),
                                  human_bytes(std::max(computed_bytes, 0.0)))};
}

}  // namespace

void check(OptionChecks& checks, const Config& config) {
  if (config.every && !config.units.empty())
    checks.refuse("optimizations.activation_checkpointing.every", "units names the units; remove one of the two");
}

Outcome apply(Plan& plan, const Config& config) {
  ModelConfig shapes = plan.model.config;
  shapes.weights.reset();
  const Model model = make_model(shapes, plan.model.input, at::kMeta, 0);
  const auto chosen =
      config.units.empty() ? every_nth_block(model, config.every.value_or(1)) : named_units(model, config.units);
  if (chosen.empty())
    return Outcome::none(fmt::format("the {} has fewer than {} between its first and its last unit",
                                     word_of(plan.model.config.name), counted(config.every.value_or(1), "block")));
  double flops = 0;
  for (const size_t unit : chosen) flops += model.unit_flops()[unit];
  const bool draws = plan.model.config.dropout > 0, selective = config.policy == Policy::selective;
  plan.rewinds_random_state |= draws;
  plan.wrap_model.push_back([chosen, how = Recomputation{.keeps_products = selective, .draws = draws}](Model& built) {
    wrap_units(built, chosen, how);
  });
  const std::string units =
      fmt::format("{} of {}", chosen.size(), counted(static_cast<int64_t>(model.units().size()), "unit"));
  const std::string what =
      selective ? fmt::format("{} keep their input and their products; the rest is computed again in backward", units)
                : fmt::format(
                      "{} keep only their input and are computed again in backward: at most {:.0f} % more "
                      "operations",
                      units, 100 * flops / (3 * model.flops_per_sample()));
  return Outcome::applied(what,
                          [on_gpu = plan.device.is_cuda()](const StepTrace& seen) { return receipt(seen, on_gpu); });
}

}  // namespace trainopt::activation_checkpointing
