#include "compare/against.h"

#include "base/error.h"
#include "base/units.h"
#include "compare/json_values.h"
#include "compare/output/comparison_json.h"
#include "compare/output/comparison_text.h"
#include "compare/output/remarks.h"
#include "compare/output/table.h"
#include "metrics/format.h"
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

std::optional<Against> measure_against(StoredArm stored, const std::string& name, const ArmSpec& spec,
                                       const Json& environment, const CompareOptions& options, Clock::time_point until,
                                       ArmFactory& factory, const Observer& observer) {
  constexpr int64_t kFewest = 3;
  const auto processes = std::max(kFewest, static_cast<int64_t>(stored.seconds_per_sample.size()));
  Against result;
  result.stored = std::move(stored);
  result.recipe = recipe_json(spec.recipe);
  result.pair.level = options.level;
  result.pair.min_effect = options.min_effect;
  const auto warm_up = std::make_shared<WarmUp>(options, limit_of(until, observer), 1, 0);
  result.sampling = sample_alone(fresh_arms(name, spec, factory, warm_up), processes, options, until, observer);
  require_rounds(result.sampling.rounds.size(), observer);
  if (result.sampling.rounds.empty()) return std::nullopt;
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
  a.pair.ratio = std::exp(mean_of(now) - mean_of(then));
  a.no_verdict = no_verdict(a);
  a.pair.interval.reset();
  a.half_width.reset();
  a.paired_half_width.reset();
  if (const auto of_log = welch_interval(then, now, a.pair.level)) {
    a.pair.interval = Interval{std::exp(of_log->low), std::exp(of_log->high)};
    a.half_width = std::expm1((of_log->high - of_log->low) / 2);
  }
  if (a.stored.pairing && a.processes() >= 2)
    a.paired_half_width = std::expm1(mean_half_width(a.stored.pairing->sd, a.processes(), a.pair.level));
  a.pair.verdict =
      a.no_verdict.empty() && a.pair.interval ? judge(*a.pair.interval, a.pair.min_effect) : Verdict::inconclusive;
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
  e.verdict = a.pair.verdict;
  e.arm_failed = a.sampling.ended == "failed";
  if (!a.no_verdict.empty()) {
    e.to_decide = a.no_verdict;
    return e;
  }
  e.interval = a.pair.interval;
  const auto then = log_throughputs(a.stored.seconds_per_sample), now = log_throughputs(seconds_per_sample(a.sampling));
  const double distance =
      rule.boundary() ? std::abs(std::log(a.pair.ratio / *rule.boundary())) : std::log1p(a.pair.min_effect);
  const int64_t needed =
      welch_values_needed(standard_deviation(then), standard_deviation(now), a.pair.level, std::max(distance, 1e-3));
  if (needed > static_cast<int64_t>(std::min(then.size(), now.size())))
    e.to_decide = fmt::format("about {} on each side would decide", counted(needed, "process", "es"));
  return e;
}

namespace {

constexpr int kAgainstSchema = 2;

Sampling sampling_from(const Json& json) {
  Sampling sampling;
  sampling.own_processes = true;
  sampling.ended = json.at("ended");
  sampling.seconds = json.at("seconds");
  if (!json.at("failure").is_null()) sampling.failure = json.at("failure");
  for (const Json& round : json.at("samples")) sampling.rounds.push_back(round_from(round, 1));
  const Json& arm = json.at("arms").at("b");
  sampling.names = {arm.at("name").get<std::string>()};
  sampling.facts = {facts_from(arm)};
  return sampling;
}

bool sound(const Against& a) {
  const auto positive = [](double value) { return std::isfinite(value) && value > 0; };
  const auto& then = a.stored.seconds_per_sample;
  const auto& pairing = a.stored.pairing;
  return !then.empty() && std::all_of(then.begin(), then.end(), positive) && !a.sampling.rounds.empty() &&
         a.pair.level > 0 && a.pair.level < 1 && a.pair.min_effect >= 0 &&
         (!pairing || (pairing->pairs >= 2 && pairing->sd >= 0));
}

Against checked_against(const Json& json) {
  if (json.at("schema_version") != kAgainstSchema)
    throw UserError(fmt::format("it has schema_version {}, this build reads {}", json_text(json.at("schema_version")),
                                kAgainstSchema),
                    ExitCode::data);
  Against a;
  a.stored = stored_arm_from(json.at("arms").at("a"));
  a.sampling = sampling_from(json);
  a.recipe = json.at("arms").at("b").at("recipe");
  a.pair.level = json.at("level");
  a.pair.min_effect = json.at("min_effect");
  for (const Json& one : json.at("differences"))
    a.differences.push_back(
        {.what = one.at("what"), .then = one.at("then"), .now = one.at("now"), .of_machine = one.at("of_machine")});
  if (!sound(a))
    throw UserError("it has no processes, or processes without time, or an invalid level or min_effect",
                    ExitCode::data);
  judge_against(a);
  if (std::abs(a.pair.ratio - json.at("ratio").get<double>()) > 1e-9 * a.pair.ratio ||
      text(a.pair.verdict) != json.at("verdict").get<std::string>())
    throw UserError(fmt::format("the samples do not give the recorded result; they give {} with a ratio of {:.4f}",
                                text(a.pair.verdict), a.pair.ratio),
                    ExitCode::data);
  return a;
}

}  // namespace

bool is_against(const Json& result) {
  return result.is_object() && result.contains("differences") && result.contains("no_verdict");
}

Json to_json(const Against& a, bool with_samples) {
  Json json = {{"schema_version", kAgainstSchema},
               {"verdict", text(a.pair.verdict)},
               {"ratio", a.pair.ratio},
               {"interval", or_null(a.pair.interval)},
               {"no_verdict", a.no_verdict.empty() ? Json() : Json(a.no_verdict)},
               {"level", a.pair.level},
               {"min_effect", a.pair.min_effect},
               {"paired", false},
               {"half_width", or_null(a.half_width)},
               {"paired_half_width", or_null(a.paired_half_width)},
               {"processes", a.processes()},
               {"ended", a.sampling.ended},
               {"failure", a.sampling.failure.empty() ? Json() : Json(a.sampling.failure)},
               {"seconds", a.sampling.seconds},
               {"own_processes", true},
               {"numerics", Json()},
               {"warnings", a.warnings}};
  json["differences"] = Json::array();
  for (const Difference& one : a.differences)
    json["differences"].push_back(
        {{"what", one.what}, {"then", one.then}, {"now", one.now}, {"of_machine", one.of_machine}});
  json["arms"] = {{"a", to_json(a.stored)}, {"b", to_json(a.arm)}};
  if (!with_samples) return json;
  json["samples"] = Json::array();
  for (const Round& round : a.sampling.rounds) json["samples"].push_back(to_json(round));
  return json;
}

Against against_from(const Json& json) {
  try {
    return checked_against(json);
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("it is not a result of compare --against: {}", json_problem(error)), ExitCode::data);
  }
}

namespace {

constexpr size_t kDifferencesShown = 12;

/// The verdict in the words of a comparison.
std::string against_headline(const Against& a) {
  if (!a.pair.interval)
    return fmt::format("inconclusive: B against A is {}; {}", percent_faster(a.pair.ratio),
                       a.no_verdict.empty() ? "the processes do not vary at all" : a.no_verdict);
  return headline(a.pair) + (a.no_verdict.empty() ? "" : "; " + a.no_verdict);
}

std::string stored_text(const StoredArm& arm) {
  return fmt::format("{} samples/s in {}, stored as {} of {}", human_rate(arm.samples_per_s),
                     counted(static_cast<int64_t>(arm.seconds_per_sample.size()), "process", "es"), arm.arm, arm.file);
}

std::string_view against_ending(const std::string& ended) {
  return ended == "processes" ? "as many as the stored result has, and at least three" : ending(ended);
}

std::string processes_text(const Against& a) {
  const std::vector<Round>& rounds = a.sampling.rounds;
  const auto of_first = static_cast<int64_t>(2 * end_of_measurement(rounds, 0, true));
  return fmt::format("{} of {} of {}, {}, {} in total", counted(a.processes(), "process", "es"),
                     counted(of_first, "turn"), counted(rounds.front().turns.front().steps, "step"),
                     against_ending(a.sampling.ended), human_seconds(a.sampling.seconds));
}

/// By how much less this shows than a comparison of arms that take turns, in measured numbers.
std::string not_paired_text(const Against& a) {
  std::string text = "A was measured earlier, so what has changed on the machine since counts too";
  if (!a.half_width) return text;
  text += fmt::format("; ±{:.1f} %", 100 * *a.half_width);
  if (!a.paired_half_width) return text;
  const StoredArm& stored = a.stored;
  return text + fmt::format(", where {} of processes that took turns would have ±{:.1f} %, judging by the {} stored",
                            counted(a.processes(), "pair"), 100 * *a.paired_half_width,
                            counted(stored.pairing->pairs, "pair"));
}

std::vector<std::string> difference_lines(const Against& a) {
  std::vector<std::string> lines;
  for (const Difference& one : a.differences) {
    if (lines.size() == kDifferencesShown) {
      lines.push_back(fmt::format("and {} more, in result.json", a.differences.size() - lines.size()));
      break;
    }
    lines.push_back(text(one));
  }
  return lines;
}

}  // namespace

std::string against_text(const Against& a, const TextStyle& style) {
  std::string text = fmt::format("A  {}\nB  {}\n\n", a.stored.name, a.arm.name);
  const auto line = [&](const std::string& name, const std::string& value) { text += labelled(name, value, style); };
  const std::string_view paint = a.pair.verdict == Verdict::pays    ? kGreen
                                 : a.pair.verdict == Verdict::costs ? kRed
                                                                    : kBold;
  const std::string result = wrapped(against_headline(a), style.columns);
  text += (style.color ? colored(result, paint) : result) + "\n";
  line("A", stored_text(a.stored));
  line("B", arm_text(a.arm));
  line("measured", processes_text(a));
  line("not paired", not_paired_text(a));
  for (const auto& difference : difference_lines(a)) line("differs", difference);
  for (const auto& warning : a.warnings) line("warning", warning);
  return text;
}

std::string against_markdown(const Against& a) {
  Table table({"arm", "recipe", "samples/s", "processes"}, 2);
  table.add({{"A, stored"},
             {a.stored.name},
             {human_rate(a.stored.samples_per_s)},
             {std::to_string(a.stored.seconds_per_sample.size())}});
  table.add({{"B, now"}, {a.arm.name}, {human_rate(a.arm.samples_per_s)}, {std::to_string(a.processes())}});
  std::string text = fmt::format("**{}**\n\n{}\n\nMeasured: {}. Not paired: {}.", against_headline(a), table.markdown(),
                                 processes_text(a), not_paired_text(a));
  for (const auto& difference : difference_lines(a)) text += fmt::format(" Differs: {}.", difference);
  for (const auto& warning : a.warnings) text += fmt::format(" Warning: {}.", warning);
  return text + "\n";
}

std::string against_csv(const Against& a) {
  std::string text = fmt::format("process,turn,{}\n", kTurnColumns);
  const std::vector<Round>& rounds = a.sampling.rounds;
  for (size_t i = 0, turn_number = 0; i < rounds.size(); ++i) {
    if (i == 0 || rounds[i].set != rounds[i - 1].set) turn_number = 0;
    for (const Turn& turn : rounds[i].turns)
      text += fmt::format("{},{},{}\n", rounds[i].set + 1, ++turn_number, turn_columns(turn, rounds[i].other_load_pct));
  }
  return text;
}

}  // namespace trainopt
