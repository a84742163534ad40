#include "compare/ablation_json.h"

#include "compare/attribution.h"
#include "compare/comparison_json.h"
#include "compare/json_values.h"

namespace trainopt {
namespace {

Json gain_json(const Gain& gain) {
  return {{"ratio", or_null(gain.ratio)},
          {"interval", or_null(gain.interval)},
          {"verdict", gain.ratio ? Json(text(gain.verdict)) : Json()},
          {"blocks", gain.blocks},
          {"pairs", gain.pairs.size()},
          {"reason", gain.reason}};
}

Json interaction_json(const Interaction& interaction) {
  return {{"with", interaction.with}, {"ratio", interaction.ratio}, {"interval", or_null(interaction.interval)}};
}

Json share_json(const std::optional<Share>& share) {
  return share ? Json{{"ratio", share->ratio}, {"interval", or_null(share->interval)}} : Json();
}

Json switch_json(const SwitchRow& row) {
  return {{"name", row.name},
          {"requested", row.requested},
          {"no_effect", row.no_effect},
          {"needs", row.needs},
          {"alone", gain_json(row.alone)},
          {"in_stack", gain_json(row.in_stack)},
          {"interaction", row.interaction ? interaction_json(*row.interaction) : Json()},
          {"share", share_json(row.share)},
          {"one_off_s", or_null(row.one_off_s)},
          {"break_even_step", or_null(row.break_even_step)},
          {"memory_mib", or_null(row.memory_mib)},
          {"numbers_agree", or_null(row.numbers_agree)},
          {"numbers", row.numbers},
          {"receipt", row.receipt}};
}

}  // namespace

Json to_json(const Ablation& a) {
  Json json = {{"schema_version", 2},
               {"name", a.name},
               {"total", gain_json(a.total)},
               {"numbers_agree", or_null(a.numbers_agree)},
               {"numbers", a.numbers},
               {"level", a.level},
               {"min_effect", a.min_effect},
               {"seconds", a.seconds},
               {"plain_samples_per_s", a.plain_samples_per_s},
               {"full_samples_per_s", a.full_samples_per_s},
               {"price_per_hour", or_null(a.price_per_hour)},
               {"share_rule", kShareRule},
               {"rest", share_json(a.rest)},
               {"pair_sd_pct", a.pair_sd ? Json(100 * *a.pair_sd) : Json()},
               {"pairs_needed", or_null(a.pairs_needed)},
               {"budget_needed_s", or_null(a.budget_needed_s)}};
  json["switches"] = Json::array();
  for (const auto& row : a.switches) json["switches"].push_back(switch_json(row));
  json["ceilings"] = ceilings_json(a.ceilings);
  json["pairs"] = Json::array();
  for (const auto& pair : a.pairs) {
    Json entry = {{"switches", {pair.one, pair.other}}};
    entry.update(gain_json(pair.gain));
    json["pairs"].push_back(std::move(entry));
  }
  json["warnings"] = a.warnings;
  return json;
}

Json ceilings_json(const std::vector<CeilingRow>& ceilings) {
  Json json = Json::array();
  for (const auto& row : ceilings) {
    Json entry = {{"without", word_of(row.without)}, {"meaning", meaning(row.without)}};
    entry.update(gain_json(row.gain));
    json.push_back(std::move(entry));
  }
  return json;
}

}  // namespace trainopt
