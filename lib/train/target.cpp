#include "train/target.h"

#include <fmt/format.h>

namespace trainopt {

std::optional<Goal> goal_of(const TargetConfig& config) {
  if (config.top1_pct) return Goal{"top1_pct", *config.top1_pct, /*at_least=*/true};
  if (config.loss) return Goal{"loss", *config.loss};
  if (config.perplexity) return Goal{"perplexity", *config.perplexity};
  return std::nullopt;
}

std::optional<double> measured_for(const Goal& goal, const EvaluationResult& result) {
  const auto of = [&](const auto& numbers) {
    if (goal.metric == "top1_pct") return numbers.top1_pct;
    return goal.metric == "loss" ? std::optional(numbers.loss) : numbers.perplexity;
  };
  return result.average ? of(*result.average) : of(result);
}

bool reached(const std::optional<Goal>& goal, const EvaluationResult& result) {
  if (!goal) return false;
  const auto value = measured_for(*goal, result);
  return value && (goal->at_least ? *value >= goal->value : *value <= goal->value);
}

std::string text(const Goal& goal) {
  return fmt::format("{} of at {} {}", goal.metric, goal.at_least ? "least" : "most", goal.value);
}

}  // namespace trainopt
