#include "compare/output/comparison_json.h"

#include "base/error.h"
#include "compare/numbers/numerics_output.h"
#include "compare/json_values.h"
#include "compare/output/remarks.h"

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

constexpr int kSchemaVersion = 2;
constexpr int kJudgedOtherwise = 1;  // an older schema with another verdict rule: its turns are read and judged again

ArmResult arm_from(const Json& json) {
  return {.name = json.at("name"),
          .facts = facts_from(json),
          .recipe = json.value("recipe", Json()),
          .samples_per_s = json.at("samples_per_s"),
          .data_wait_pct = json.at("data_wait_pct"),
          .tokens_per_s = json.contains("tokens_per_s") ? optional_at<double>(json, "tokens_per_s") : std::nullopt,
          .step_ms_p50 = optional_at<double>(json, "step_ms_p50"),
          .phases = json.contains("phases") ? phase_sums_from(json.at("phases")) : PhaseSums()};
}

Comparison read(const Json& json) {
  Comparison c;
  const bool judged_otherwise = json.at("schema_version") == kJudgedOtherwise;
  c.level = json.at("level");
  c.min_effect = json.at("min_effect");
  c.ended = json.at("ended");
  if (const Json failure = json.value("failure", Json()); failure.is_string()) c.failure = failure;
  c.seconds = json.at("seconds");
  c.own_processes = json.at("own_processes");
  c.warnings = json.at("warnings").get<std::vector<std::string>>();
  c.a = arm_from(json.at("arms").at("a"));
  c.b = arm_from(json.at("arms").at("b"));
  c.noise = noise_from(json.at("noise_floor"));
  if (const Json& numerics = json.at("numerics"); !numerics.is_null() && !judged_otherwise)
    c.numerics = numerics_from(numerics);
  for (const Json& block : json.at("samples")) c.blocks.push_back(block_from(block));
  c.seed = json.at("seed");
  if (!judged_otherwise) c.longest_stall = json.at("longest_stall_turns");
  const auto sound = [](const Block& block) {
    return std::all_of(block.turns.begin(), block.turns.end(),
                       [](const Turn& turn) { return turn.seconds > 0 && turn.samples > 0; });
  };
  if (c.blocks.empty() || !std::all_of(c.blocks.begin(), c.blocks.end(), sound) || !(c.level > 0 && c.level < 1) ||
      !(c.min_effect >= 0) || !(c.longest_stall >= 0))
    throw UserError("it has no blocks, or turns without time or samples, or an invalid level or min_effect",
                    ExitCode::data);
  judge_blocks(c);
  if (judged_otherwise) {
    c.warnings = warnings_of(c);
    c.warnings.push_back(
        fmt::format("an earlier version measured this and said {}; its turns are judged by the current rule",
                    json.at("verdict").get<std::string>()));
    return c;
  }
  if (std::abs(c.ratio - json.at("ratio").get<double>()) > 1e-9 * c.ratio ||
      text(c.verdict) != json.at("verdict").get<std::string>())
    throw UserError(fmt::format("the samples do not give the recorded result; they give {} with a ratio of {:.4f}",
                                text(c.verdict), c.ratio),
                    ExitCode::data);
  return c;
}

}  // namespace

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

Json to_json(const Comparison& c, bool with_samples) {
  Json json = {{"schema_version", kSchemaVersion},
               {"verdict", text(c.verdict)},
               {"ratio", c.ratio},
               {"interval", or_null(c.interval)},
               {"typical_interval", or_null(c.typical)},
               {"level", c.level},
               {"min_effect", c.min_effect},
               {"blocks", c.blocks.size()},
               {"pairs", c.own_processes ? Json(c.pairs()) : Json()},
               {"longest_stall_turns", c.longest_stall},
               {"unseen", unseen_stalls(c)},
               {"paired", true},
               {"ended", c.ended},
               {"failure", c.failure.empty() ? Json() : Json(c.failure)},
               {"seconds", c.seconds},
               {"seed", c.seed},
               {"own_processes", c.own_processes},
               {"warnings", c.warnings}};
  json["numerics"] = c.numerics ? to_json(*c.numerics) : Json();
  json["carry_over"] = to_json(c.carry_over);
  json["noise_floor"] = c.noise ? to_json(*c.noise) : Json();
  json["arms"] = {{"a", to_json(c.a)}, {"b", to_json(c.b)}};
  if (!with_samples) return json;
  json["samples"] = Json::array();
  for (const Block& block : c.blocks) json["samples"].push_back(to_json(block));
  return json;
}

Comparison comparison_from(const Json& json) {
  try {
    if (json.at("schema_version") != kSchemaVersion && json.at("schema_version") != kJudgedOtherwise)
      throw UserError(fmt::format("it has schema_version {}, this build reads {}", json_text(json.at("schema_version")),
                                  kSchemaVersion),
                      ExitCode::data);
    return read(json);
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("it is not a comparison's result.json: {}", json_problem(error)), ExitCode::data);
  }
}

}  // namespace trainopt
