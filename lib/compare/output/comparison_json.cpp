#include "compare/output/comparison_json.h"

#include "base/error.h"
#include "compare/json_values.h"
#include "compare/numbers/numerics_output.h"
#include "compare/output/comparison_text.h"
#include "compare/output/remarks.h"

#include <algorithm>
#include <cmath>

namespace trainopt {

Json to_json(const NoiseFloor& noise) {
  return {{"ratio", noise.ratio},
          {"interval", or_null(noise.interval)},
          {"block_sd_pct", noise.block_sd_pct},
          {"blocks", noise.blocks}};
}

std::optional<NoiseFloor> noise_from(const Json& json) {
  if (json.is_null()) return std::nullopt;
  return NoiseFloor{.ratio = json.at("ratio"),
                    .interval = optional_at<Interval>(json, "interval"),
                    .block_sd_pct = json.at("block_sd_pct"),
                    .blocks = json.at("blocks")};
}

Json to_json(const std::optional<CarryOver>& carry_over) {
  if (!carry_over) return {};
  return {{"ratio", carry_over->ratio}, {"interval", or_null(carry_over->interval)}};
}

Json to_json(const ArmResult& arm) {
  Json json = {{"name", arm.name},
               {"samples_per_s", arm.samples_per_s},
               {"tokens_per_s", or_null(arm.tokens_per_s)},
               {"price_per_million_samples", or_null(price_per_million_samples(arm))},
               {"step_ms_p50", or_null(arm.step_ms_p50)},
               {"data_wait_pct", arm.data_wait_pct},
               {"phases", to_json(arm.phases)},
               {"recipe", arm.recipe}};
  json.update(to_json(arm.facts));
  return json;
}

namespace {

// The layout of two arms: keys `a` and `b`, and blocks of four turns.

constexpr int kTwoArmsSchema = 2, kSeveralArmsSchema = 1;

void add_results_of_two(const Comparison& c, Json& json) {
  const PairResult& pair = c.pair();
  json.update({{"verdict", text(pair.verdict)},
               {"ratio", pair.ratio},
               {"interval", or_null(pair.interval)},
               {"typical_interval", or_null(pair.typical)},
               {"blocks", pair.blocks.size()},
               {"pairs", c.sampling.own_processes ? Json(pair.process_pairs()) : Json()},
               {"unseen", unseen_stalls(pair)},
               {"numerics", c.numbers() ? to_json(*c.numbers()) : Json()},
               {"carry_over", to_json(pair.carry_over)},
               {"arms", {{"a", to_json(c.arms[0])}, {"b", to_json(c.arms[1])}}}});
}

Round round_of(const Block& block) {
  return {.order = block.order == Order::abba ? std::vector<size_t>{0, 1} : std::vector<size_t>{1, 0},
          .set = block.pair,
          .turns = {block.turns.begin(), block.turns.end()},
          .other_load_pct = block.other_load_pct};
}

void read_two(const Json& json, Comparison& c) {
  for (const char* arm : {"a", "b"}) {
    const Json& of_arm = json.at("arms").at(arm);
    c.sampling.names.push_back(of_arm.at("name"));
    c.sampling.facts.push_back(facts_from(of_arm));
    c.recipes.push_back(of_arm.value("recipe", Json()));
  }
  const Json& numerics = json.at("numerics");
  c.numerics = {std::nullopt, numerics.is_null() ? std::optional<Numerics>() : numerics_from(numerics)};
  for (const Json& block : json.at("samples")) c.sampling.rounds.push_back(round_of(block_from(block)));
  const auto sound = [](const Round& round) {
    return std::all_of(round.turns.begin(), round.turns.end(),
                       [](const Turn& turn) { return turn.seconds > 0 && turn.samples > 0; });
  };
  // Otherwise it is refused like a result without rounds.
  if (!std::all_of(c.sampling.rounds.begin(), c.sampling.rounds.end(), sound)) c.sampling.rounds.clear();
}

// The layout of several arms: a list of arms, one of pairs, and rounds.

Json pair_json(const Comparison& c, PairOfArms arms) {
  const PairResult& pair = c.pair(arms.a, arms.b);
  return {{"a", c.arms[arms.a].name},
          {"b", c.arms[arms.b].name},
          {"verdict", text(pair.verdict)},
          {"ratio", pair.ratio},
          {"interval", or_null(pair.interval)},
          {"typical_interval", or_null(pair.typical)},
          {"carry_over", to_json(pair.carry_over)}};
}

Json fastest_json(const Comparison& c) {
  Json names = Json::array();
  for (const size_t arm : c.fastest.arms) names.push_back(c.arms[arm].name);
  return {{"arms", names}, {"alike", c.fastest.alike}, {"ahead", or_null(c.fastest.ahead)}, {"text", headline(c)}};
}

void add_results_of_several(const Comparison& c, Json& json) {
  json.update({{"job", c.job},
               {"each", {{"key", c.key}, {"values", c.sampling.names}}},
               {"fastest", fastest_json(c)},
               {"pair_level", pair_level(c.level, c.arms.size())},
               {"rounds", c.sampling.rounds.size()},
               {"sets", c.sampling.own_processes ? Json(c.sets()) : Json()}});
  json["arms"] = Json::array();
  for (size_t arm = 0; arm < c.arms.size(); ++arm) {
    json["arms"].push_back(to_json(c.arms[arm]));
    json["arms"].back()["numerics"] = c.numerics[arm] ? to_json(*c.numerics[arm]) : Json();
  }
  json["pairs"] = Json::array();
  for (const PairOfArms& pair : pairs_of(c.arms.size())) json["pairs"].push_back(pair_json(c, pair));
}

void read_several(const Json& json, Comparison& c) {
  c.job = json.at("job");
  c.key = json.at("each").at("key");
  for (const Json& arm : json.at("arms")) {
    c.sampling.names.push_back(arm.at("name"));
    c.sampling.facts.push_back(facts_from(arm));
    c.recipes.push_back(arm.value("recipe", Json()));
    const Json& numerics = arm.at("numerics");
    c.numerics.push_back(numerics.is_null() ? std::optional<Numerics>() : numerics_from(numerics));
  }
  const size_t arms = c.sampling.names.size();
  if (arms < 2 || arms > kMostArms || c.key.empty()) return;
  for (const Json& round : json.at("samples")) c.sampling.rounds.push_back(round_from(round, arms));
}

/// Whether this is the layout of several arms.
bool has_several(const Json& json) { return json.contains("each"); }

/// Throws UserError(data) if the pair's result is not the recorded one.
void require_recorded(const Comparison& c, PairOfArms arms, const Json& recorded) {
  const PairResult& now = c.pair(arms.a, arms.b);
  if (std::abs(now.ratio - recorded.at("ratio").get<double>()) <= 1e-9 * now.ratio &&
      text(now.verdict) == recorded.at("verdict").get<std::string>())
    return;
  const std::string of =
      c.is_a_and_b() ? "" : fmt::format(" for {} against {}", c.arms[arms.b].name, c.arms[arms.a].name);
  throw UserError(fmt::format("the samples do not give the recorded result{}; they give {} with a ratio of {:.4f}", of,
                              text(now.verdict), now.ratio),
                  ExitCode::data);
}

Comparison read(const Json& json) {
  const int schema = has_several(json) ? kSeveralArmsSchema : kTwoArmsSchema;
  if (json.at("schema_version") != schema)
    throw UserError(
        fmt::format("it has schema_version {}, this build reads {}", json_text(json.at("schema_version")), schema),
        ExitCode::data);
  Comparison c;
  c.level = json.at("level");
  c.min_effect = json.at("min_effect");
  c.seed = json.at("seed");
  c.noise = noise_from(json.at("noise_floor"));
  c.sampling.own_processes = json.at("own_processes");
  c.sampling.longest_stall = json.at("longest_stall_turns");
  c.sampling.seconds = json.at("seconds");
  c.sampling.ended = json.at("ended");
  if (const Json failure = json.value("failure", Json()); failure.is_string()) c.sampling.failure = failure;
  (has_several(json) ? read_several : read_two)(json, c);
  if (c.sampling.rounds.empty() || !(c.level > 0 && c.level < 1) || !(c.min_effect >= 0) ||
      !(c.sampling.longest_stall >= 0))
    throw UserError(has_several(json)
                        ? "it has no rounds, too few or too many arms, or an invalid level or min_effect"
                        : "it has no blocks, or turns without time or samples, or an invalid level or min_effect",
                    ExitCode::data);
  judge(c);
  c.warnings = json.at("warnings").get<std::vector<std::string>>();
  if (const Json command = json.value("command", Json()); command.is_string()) c.command = command;
  if (json.contains("to_decide")) {  // as it was measured: what is computed again takes the preparation for turns
    c.to_decide.clear();
    for (const Json& each : json.at("to_decide"))
      c.to_decide.push_back({each.at("what"), each.at("budget_s").is_null() ? 0 : each.at("budget_s").get<double>()});
  }
  const std::vector<PairOfArms> pairs = pairs_of(c.arms.size());
  for (size_t i = 0; i < pairs.size(); ++i)
    require_recorded(c, pairs[i], c.is_a_and_b() ? json : json.at("pairs").at(i));
  return c;
}

}  // namespace

Json to_json(const Comparison& c, bool with_samples) {
  const Sampling& s = c.sampling;
  Json json = {{"schema_version", c.is_a_and_b() ? kTwoArmsSchema : kSeveralArmsSchema}};
  (c.is_a_and_b() ? add_results_of_two : add_results_of_several)(c, json);
  json.update({{"level", c.level},
               {"min_effect", c.min_effect},
               {"longest_stall_turns", s.longest_stall},
               {"paired", true},
               {"ended", s.ended},
               {"failure", s.failure.empty() ? Json() : Json(s.failure)},
               {"seconds", s.seconds},
               {"seed", c.seed},
               {"own_processes", s.own_processes},
               {"warnings", c.warnings},
               {"command", c.command.empty() ? Json() : Json(c.command)},
               {"to_decide", Json::array()},
               {"noise_floor", c.noise ? to_json(*c.noise) : Json()}});
  for (const ToDecide& each : c.to_decide)
    json["to_decide"].push_back(
        {{"what", each.what},
         {"budget_s", each.budget_s > 0 ? Json(each.budget_s) : Json()},
         {"command", each.budget_s > 0 ? Json(with_budget("", c.command, each.budget_s)) : Json()}});
  if (!with_samples) return json;
  json["samples"] = Json::array();
  if (c.is_a_and_b())
    for (const Block& block : c.pair().blocks) json["samples"].push_back(to_json(block));
  else
    for (const Round& round : s.rounds) json["samples"].push_back(to_json(round));
  return json;
}

Comparison comparison_from(const Json& json) {
  try {
    return read(json);
  } catch (const Json::exception& error) {
    throw UserError(
        fmt::format("it is not {}: {}", has_several(json) ? "the result.json of --each" : "a comparison's result.json",
                    json_problem(error)),
        ExitCode::data);
  }
}

}  // namespace trainopt
