#include "compare/against.h"

#include "base/counted.h"
#include "base/error.h"
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

/// Why nothing can be decided; empty: it can.
std::string no_verdict(const Against& a) {
  if (!a.stored.own_processes)
    return "the stored arms shared one process, which is one measurement; store a result taken with --own-processes";
  if (a.stored.seconds_per_sample.size() < 2)
    return "the stored result has one process of this arm; store one with more (a longer --budget)";
  if (a.processes() < 2) return "only one process was measured; more are needed (a longer --budget)";
  for (const Difference& one : a.differences)
    if (one.of_machine)
      return fmt::format("the stored result is of another machine, which is part of the difference ({})", text(one));
  return {};
}

std::vector<std::string> warnings_of(const Against& a) {
  std::vector<std::string> all = conditions_of(a.sampling.rounds);
  if (!a.stored.recipe.is_object())
    all.push_back("the stored result does not say which recipe it measured: an earlier version wrote it");
  std::vector<std::string> keys;
  if (a.stored.recipe.is_object())
    for (const Difference& one : recipe_differences(a.stored.recipe, a.recipe)) keys.push_back(one.what);
  if (!keys.empty())
    all.push_back(
        fmt::format("the stored {} is of another recipe, which differs in {}", a.stored.arm, fmt::join(keys, ", ")));
  if (!a.stored.environment.is_object())
    all.push_back("the stored result has no environment.json: other hardware or versions would not be noticed");
  return all;
}

}  // namespace

void require_same_ranks(const StoredArm& stored, int64_t ranks) {
  const Json& then = stored.plan;
  const bool known = then.is_object() && then.contains("data") && then.at("data").is_object();
  const int64_t before = known ? then.at("data").value("ranks", ranks) : ranks;
  if (before != ranks)
    throw UserError(
        fmt::format("the stored arm ran on {} and this job has {}; start as many, or store a result of this job",
                    counted(before, "rank"), ranks));
}

Against measure_against(StoredArm stored, const std::string& name, const ArmSpec& spec, const Json& environment,
                        const CompareOptions& options, Clock::time_point until, ArmFactory& factory,
                        const Observer& observer) {
  constexpr int64_t kFewest = 3;
  const auto processes = std::max(kFewest, static_cast<int64_t>(stored.seconds_per_sample.size()));
  Against result;
  result.stored = std::move(stored);
  result.recipe = recipe_json(spec.recipe);
  result.level = options.level;
  result.min_effect = options.min_effect;
  result.sampling = sample_alone(fresh_arms(name, spec, factory, options), processes, options, until, observer);
  const auto recipe = recipe_differences(result.stored.recipe, result.recipe);
  const bool other_recipe = !recipe.empty() || !result.stored.recipe.is_object();
  for (const auto& list :
       {environment_differences(result.stored.environment, environment),
        plan_differences(result.stored.plan, result.sampling.facts.front().plan, other_recipe), recipe})
    result.differences.insert(result.differences.end(), list.begin(), list.end());
  judge_against(result);
  return result;
}

void judge_against(Against& a) {
  a.arm = result_of(a.sampling, 0);
  a.arm.recipe = a.recipe;
  const auto then = log_throughputs(a.stored.seconds_per_sample), now = log_throughputs(seconds_per_sample(a.sampling));
  a.ratio = std::exp(mean_of(now) - mean_of(then));
  a.no_verdict = no_verdict(a);
  a.interval.reset();
  a.half_width.reset();
  a.paired_half_width.reset();
  if (const auto of_log = welch_interval(then, now, a.level)) {
    a.interval = Interval{std::exp(of_log->low), std::exp(of_log->high)};
    a.half_width = std::expm1((of_log->high - of_log->low) / 2);
  }
  if (a.stored.pairing && a.processes() >= 2)
    a.paired_half_width = std::expm1(mean_half_width(a.stored.pairing->sd, a.processes(), a.level));
  a.verdict = a.no_verdict.empty() && a.interval ? judge(*a.interval, a.min_effect) : Verdict::inconclusive;
  a.warnings = warnings_of(a);
}

StoredArm measured_arm(const Against& a) {
  StoredArm arm;
  arm.arm = "B";
  arm.name = a.arm.name;
  arm.samples_per_s = a.arm.samples_per_s;
  arm.own_processes = true;
  arm.seconds_per_sample = seconds_per_sample(a.sampling);
  arm.pairing = a.stored.pairing;
  arm.recipe = a.recipe;
  arm.plan = a.arm.facts.plan;
  return arm;
}

GateEvidence evidence_of(const Against& a, const GateRule& rule) {
  GateEvidence e;
  e.verdict = a.verdict;
  e.arm_failed = a.sampling.ended == "failed";
  if (!a.no_verdict.empty()) {
    e.to_decide = a.no_verdict;
    return e;
  }
  e.interval = a.interval;
  const auto then = log_throughputs(a.stored.seconds_per_sample), now = log_throughputs(seconds_per_sample(a.sampling));
  const double distance = rule.boundary() ? std::abs(std::log(a.ratio / *rule.boundary())) : std::log1p(a.min_effect);
  const int64_t needed =
      welch_values_needed(standard_deviation(then), standard_deviation(now), a.level, std::max(distance, 1e-3));
  if (needed > static_cast<int64_t>(std::min(then.size(), now.size())))
    e.to_decide = fmt::format("about {} on each side would decide", counted(needed, "process", "es"));
  return e;
}

}  // namespace trainopt
