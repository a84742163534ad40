#include "compare/output/rotation_json.h"

#include "base/error.h"
#include "compare/numbers/numerics_output.h"
#include "compare/output/comparison_json.h"
#include "compare/json_values.h"
#include "compare/output/remarks.h"
#include "compare/output/rotation_text.h"

#include <cmath>

namespace trainopt {
namespace {

constexpr int kRotationSchema = 1;

Json pair_json(const Rotation& r, PairOfArms arms) {
  const Comparison& pair = r.pair(arms.a, arms.b);
  return {{"a", r.arms[arms.a].name},
          {"b", r.arms[arms.b].name},
          {"verdict", text(pair.verdict)},
          {"ratio", pair.ratio},
          {"interval", or_null(pair.interval)},
          {"typical_interval", or_null(pair.typical)},
          {"carry_over", to_json(pair.carry_over)}};
}

Json fastest_json(const Rotation& r) {
  Json names = Json::array();
  for (const size_t arm : r.fastest.arms) names.push_back(r.arms[arm].name);
  return {{"arms", names}, {"alike", r.fastest.alike}, {"ahead", or_null(r.fastest.ahead)}, {"text", headline(r)}};
}

Rotation read_rotation(const Json& json) {
  Rotation r;
  r.job = json.at("job");
  r.key = json.at("each").at("key");
  r.level = json.at("level");
  r.min_effect = json.at("min_effect");
  r.seed = json.at("seed");
  Sampling& s = r.sampling;
  s.own_processes = json.at("own_processes");
  s.longest_stall = json.at("longest_stall_turns");
  s.seconds = json.at("seconds");
  s.ended = json.at("ended");
  if (!json.at("failure").is_null()) s.failure = json.at("failure");
  r.noise = noise_from(json.at("noise_floor"));
  for (const Json& arm : json.at("arms")) {
    s.names.push_back(arm.at("name"));
    s.facts.push_back(facts_from(arm));
    const Json& numerics = arm.at("numerics");
    r.numerics.push_back(numerics.is_null() ? std::optional<Numerics>() : numerics_from(numerics));
  }
  if (s.names.size() < 2 || s.names.size() > kMostArms || !(r.level > 0 && r.level < 1) || !(r.min_effect >= 0) ||
      !(s.longest_stall >= 0) || json.at("samples").empty())
    throw UserError("it has no rounds, too few or too many arms, or an invalid level or min_effect", ExitCode::data);
  for (const Json& round : json.at("samples")) s.rounds.push_back(round_from(round, s.names.size()));
  judge(r);
  const std::vector<PairOfArms> pairs = pairs_of(r.arms.size());
  for (size_t i = 0; i < pairs.size(); ++i) {
    const Json& recorded = json.at("pairs").at(i);
    const Comparison& now = r.pairs[i];
    if (std::abs(now.ratio - recorded.at("ratio").get<double>()) > 1e-9 * now.ratio ||
        text(now.verdict) != recorded.at("verdict").get<std::string>())
      throw UserError(fmt::format("the samples do not give the recorded result for {} against {}; they give {} with a "
                                  "ratio of {:.4f}",
                                  r.arms[pairs[i].b].name, r.arms[pairs[i].a].name, text(now.verdict), now.ratio),
                      ExitCode::data);
  }
  return r;
}

}  // namespace

Json to_json(const Rotation& r, bool with_samples) {
  const Sampling& s = r.sampling;
  Json json = {{"schema_version", kRotationSchema},
               {"job", r.job},
               {"each", {{"key", r.key}, {"values", s.names}}},
               {"fastest", fastest_json(r)},
               {"level", r.level},
               {"pair_level", pair_level(r.level, r.arms.size())},
               {"min_effect", r.min_effect},
               {"rounds", s.rounds.size()},
               {"sets", s.own_processes ? Json(r.sets()) : Json()},
               {"longest_stall_turns", s.longest_stall},
               {"paired", true},
               {"ended", s.ended},
               {"failure", s.failure.empty() ? Json() : Json(s.failure)},
               {"seconds", s.seconds},
               {"seed", r.seed},
               {"own_processes", s.own_processes},
               {"warnings", r.warnings}};
  json["noise_floor"] = r.noise ? to_json(*r.noise) : Json();
  json["arms"] = Json::array();
  for (size_t arm = 0; arm < r.arms.size(); ++arm) {
    json["arms"].push_back(to_json(r.arms[arm]));
    json["arms"].back()["numerics"] = r.numerics[arm] ? to_json(*r.numerics[arm]) : Json();
  }
  json["pairs"] = Json::array();
  for (const PairOfArms& pair : pairs_of(r.arms.size())) json["pairs"].push_back(pair_json(r, pair));
  if (!with_samples) return json;
  json["samples"] = Json::array();
  for (const Round& round : s.rounds) json["samples"].push_back(to_json(round));
  return json;
}

bool is_rotation(const Json& json) { return json.contains("each"); }

Rotation rotation_from(const Json& json) {
  try {
    if (json.at("schema_version") != kRotationSchema)
      throw UserError(fmt::format("it has schema_version {}, this build reads {}", json_text(json.at("schema_version")),
                                  kRotationSchema),
                      ExitCode::data);
    return read_rotation(json);
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("it is not the result.json of --each: {}", json_problem(error)), ExitCode::data);
  }
}

}  // namespace trainopt
