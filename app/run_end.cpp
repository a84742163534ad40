#include "app/run_end.h"

#include "base/signals.h"
#include "base/units.h"
#include "checkpoint/store.h"

#include <fmt/format.h>

namespace trainopt {
namespace {

/// " (train.target: top1_pct of at least 97; 97.2)", or that it was not reached; empty without a target.
std::string target_text(const RunOutcome& outcome, const Plan& plan) {
  const auto goal = goal_of(plan.train.target);
  if (!goal) return "";
  const auto value = outcome.evaluation ? measured_for(*goal, *outcome.evaluation) : std::nullopt;
  return fmt::format(" (train.target: {}; {}{})", text(*goal), outcome.target ? "" : "not reached, ",
                     value ? fmt::format("{:.4g}", *value) : "never evaluated");
}

}  // namespace

RunEnd end_of_run(const RunOutcome& outcome, const Plan& plan, const std::optional<int64_t>& saved_step,
                  int64_t restarts) {
  const std::string steps = counted(outcome.steps, "step"),
                    with = restarts > 0 ? fmt::format(", with {}", counted(restarts, "restart")) : "";
  if (outcome.stopped_by_signal != 0) {
    const std::string saved =
        saved_step == outcome.steps ? fmt::format(", saved as {}", checkpoint_name(outcome.steps)) : "";
    if (outcome.stopped_by_signal == kFolderTaken)
      return {"stopped", fmt::format("after {}{}{}", steps, with, saved), static_cast<int>(ExitCode::storage)};
    return {"stopped", fmt::format("by signal {} after {}{}{}", outcome.stopped_by_signal, steps, with, saved),
            128 + outcome.stopped_by_signal};
  }
  if (goal_of(plan.train.target))
    return {"done", fmt::format("after {}{}{}", steps, with, target_text(outcome, plan)), 0};
  return {"done",
          !plan.steps || outcome.steps < *plan.steps
              ? fmt::format("after {}{} (train.max_time: {})", steps, with, to_text(*plan.train.max_time))
              : fmt::format("after {}{}", steps, with),
          0};
}

Json target_json(const RunOutcome& outcome, const Plan& plan, const Json& samples_per_joule) {
  const auto goal = goal_of(plan.train.target);
  if (!goal) return {};
  const TargetReached at = outcome.target.value_or(TargetReached{outcome.steps, outcome.samples, outcome.training_s});
  const auto value = outcome.evaluation ? measured_for(*goal, *outcome.evaluation) : std::nullopt;
  const auto& price = plan.bench.price_per_hour;
  return {{"metric", goal->metric},
          {"goal", goal->value},
          {"value", value ? Json(*value) : Json()},
          {"reached", outcome.target.has_value()},
          {"step", at.step},
          {"samples", at.samples},
          {"training_s", at.training_s},
          {"resolution_steps", plan.evaluation ? Json(plan.evaluation->every_n_steps.value_or(0)) : Json()},
          {"energy_j", samples_per_joule.is_number()
                           ? Json(static_cast<double>(at.samples) / samples_per_joule.get<double>())
                           : Json()},
          {"price", price ? Json(*price * at.training_s / 3600) : Json()}};
}

}  // namespace trainopt
