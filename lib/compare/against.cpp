#include "compare/against.h"

#include "base/counted.h"
#include "compare/comparison_text.h"
#include "compare/comparison_warnings.h"
#include "recipe/recipe_io.h"
#include "statistics/spread.h"
#include "statistics/welch.h"

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

std::vector<double> log_throughputs(const std::vector<double>& seconds_per_sample) {
  std::vector<double> logs;
  for (const double seconds : seconds_per_sample) logs.push_back(-std::log(seconds));
  return logs;
}

std::vector<double> log_throughputs(const MeasuredAlone& measured) {
  std::vector<double> logs;
  for (const ProcessTurns& process : measured.processes) logs.push_back(-std::log(process.seconds_per_sample()));
  return logs;
}

/// Why nothing can be decided; empty: it can.
std::string no_verdict(const Against& a) {
  if (!a.stored.own_processes)
    return "the stored arms shared one process, which is one measurement; store a result taken with --own-processes";
  if (a.stored.seconds_per_sample.size() < 2)
    return "the stored result has one process of this arm; store one with more (a longer --budget)";
  if (a.now.processes.size() < 2) return "only one process was measured; more are needed (a longer --budget)";
  for (const Difference& one : a.differences)
    if (one.of_machine)
      return fmt::format("the stored result is of another machine, which is part of the difference ({})", text(one));
  return {};
}

void add_conditions(const MeasuredAlone& measured, std::vector<std::string>& all) {
  double busy = 0;
  int64_t throttle = 0;
  for (const ProcessTurns& process : measured.processes) {
    busy += process.other_load_pct.value_or(0) / static_cast<double>(measured.processes.size());
    for (const Turn& turn : process.turns) throttle |= turn.throttle.value_or(0);
  }
  for (const auto& warning : conditions(busy, throttle)) all.push_back(warning);
}

std::vector<std::string> warnings_of(const Against& a) {
  std::vector<std::string> all;
  add_conditions(a.now, all);
  if (!a.stored.recipe.is_object())
    all.push_back("the stored result does not say which recipe it measured: an earlier version wrote it");
  std::vector<std::string> keys;
  if (a.stored.recipe.is_object())
    for (const Difference& one : recipe_differences(a.stored.recipe, a.now.arm.recipe)) keys.push_back(one.what);
  if (!keys.empty())
    all.push_back(
        fmt::format("the stored {} is of another recipe, which differs in {}", a.stored.arm, fmt::join(keys, ", ")));
  if (!a.stored.environment.is_object())
    all.push_back("the stored result has no environment.json: other hardware or versions would not be noticed");
  return all;
}

}  // namespace

void require_same_ranks(const StoredArm& stored, const Plan& plan) {
  const Json& then = stored.plan;
  const int64_t before = then.is_object() && then.contains("data") ? then.at("data").value("ranks", int64_t{0}) : 0;
  if (before != 0 && before != plan.position.ranks)
    throw UserError(
        fmt::format("the stored arm ran on {} and this job has {}; start as many, or store a result of this job",
                    counted(before, "rank"), plan.position.ranks));
}

Against measure_against(StoredArm stored, const std::string& name, const ArmSpec& spec, const Json& environment,
                        const CompareOptions& options, Clock::time_point until, ArmFactory& factory,
                        const Observer& observer) {
  constexpr int64_t kFewest = 3;
  const auto processes = std::max(kFewest, static_cast<int64_t>(stored.seconds_per_sample.size()));
  Against result{.stored = std::move(stored),
                 .now = {},
                 .differences = {},
                 .interval = {},
                 .no_verdict = {},
                 .half_width = {},
                 .paired_half_width = {},
                 .warnings = {}};
  result.level = options.level;
  result.min_effect = options.min_effect;
  result.now = measure_alone(fresh_arms(name, spec, factory, options), processes, options, until, observer);
  result.now.arm.recipe = recipe_json(spec.recipe);
  auto recipe = recipe_differences(result.stored.recipe, result.now.arm.recipe);
  const bool other_recipe = !recipe.empty() || !result.stored.recipe.is_object();
  for (const auto& list : {environment_differences(result.stored.environment, environment),
                           plan_differences(result.stored.plan, result.now.arm.facts.plan, other_recipe), recipe})
    result.differences.insert(result.differences.end(), list.begin(), list.end());
  judge_against(result);
  return result;
}

void judge_against(Against& a) {
  const auto then = log_throughputs(a.stored.seconds_per_sample), now = log_throughputs(a.now);
  a.ratio = std::exp(mean_of(now) - mean_of(then));
  a.no_verdict = no_verdict(a);
  if (const auto of_log = welch_interval(then, now, a.level)) {
    a.interval = Interval{std::exp(of_log->low), std::exp(of_log->high)};
    a.half_width = std::expm1((of_log->high - of_log->low) / 2);
  }
  const auto processes = static_cast<int64_t>(now.size());
  if (a.stored.pairing && processes >= 2)
    a.paired_half_width = std::expm1(mean_half_width(a.stored.pairing->sd, processes, a.level));
  a.verdict = a.no_verdict.empty() && a.interval ? judge(*a.interval, a.min_effect) : Verdict::inconclusive;
  a.warnings = warnings_of(a);
}

StoredArm measured_arm(const Against& a) {
  StoredArm arm{.file = {}, .arm = "B", .name = a.now.arm.name, .seconds_per_sample = {}, .pairing = a.stored.pairing};
  arm.samples_per_s = a.now.arm.samples_per_s;
  arm.own_processes = true;
  for (const ProcessTurns& process : a.now.processes) arm.seconds_per_sample.push_back(process.seconds_per_sample());
  arm.recipe = a.now.arm.recipe;
  arm.plan = a.now.arm.facts.plan;
  return arm;
}

GateEvidence evidence_of(const Against& a, const GateRule& rule) {
  GateEvidence e{.verdict = a.verdict, .interval = {}, .disagreement = {}, .to_decide = {}};
  e.arm_failed = a.now.ended == "failed";
  if (!a.no_verdict.empty()) {
    e.to_decide = a.no_verdict;
    return e;
  }
  e.interval = a.interval;
  const auto then = log_throughputs(a.stored.seconds_per_sample), now = log_throughputs(a.now);
  const double distance = rule.boundary() ? std::abs(std::log(a.ratio / *rule.boundary())) : std::log1p(a.min_effect);
  const int64_t needed =
      welch_values_needed(standard_deviation(then), standard_deviation(now), a.level, std::max(distance, 1e-3));
  if (needed > static_cast<int64_t>(std::min(then.size(), now.size())))
    e.to_decide = fmt::format("about {} on each side would decide", counted(needed, "process", "es"));
  return e;
}

}  // namespace trainopt
