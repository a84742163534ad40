#include "base/error.h"
#include "compare/against.h"
#include "compare/comparison_json.h"
#include "compare/json_values.h"

#include <algorithm>
#include <cmath>

namespace trainopt {
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
         a.level > 0 && a.level < 1 && a.min_effect >= 0 && (!pairing || (pairing->pairs >= 2 && pairing->sd >= 0));
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
  a.level = json.at("level");
  a.min_effect = json.at("min_effect");
  for (const Json& one : json.at("differences"))
    a.differences.push_back(
        {.what = one.at("what"), .then = one.at("then"), .now = one.at("now"), .of_machine = one.at("of_machine")});
  if (!sound(a))
    throw UserError("it has no processes, or processes without time, or an invalid level or min_effect",
                    ExitCode::data);
  judge_against(a);
  if (std::abs(a.ratio - json.at("ratio").get<double>()) > 1e-9 * a.ratio ||
      text(a.verdict) != json.at("verdict").get<std::string>())
    throw UserError(fmt::format("the samples do not give the recorded result; they give {} with a ratio of {:.4f}",
                                text(a.verdict), a.ratio),
                    ExitCode::data);
  return a;
}

}  // namespace

bool is_against(const Json& result) {
  return result.is_object() && result.contains("differences") && result.contains("no_verdict");
}

Json to_json(const Against& a, bool with_samples) {
  Json json = {{"schema_version", kAgainstSchema},
               {"verdict", text(a.verdict)},
               {"ratio", a.ratio},
               {"interval", or_null(a.interval)},
               {"no_verdict", a.no_verdict.empty() ? Json() : Json(a.no_verdict)},
               {"level", a.level},
               {"min_effect", a.min_effect},
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

}  // namespace trainopt
