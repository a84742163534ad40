#include "compare/arm.h"

#include "base/error.h"
#include "compare/json_values.h"

#include <algorithm>

namespace trainopt {
namespace {

Json to_json(const RankShare& share) {
  return {{"peak_memory_mib", or_null(share.peak_memory_mib)},
          {"state_mib", share.state_mib},
          {"sent_mib", share.sent_mib}};
}

RankShare share_from(const Json& json) {
  return {.peak_memory_mib = optional_at<double>(json, "peak_memory_mib"),
          .state_mib = json.at("state_mib"),
          .sent_mib = json.at("sent_mib")};
}

}  // namespace

RankShare largest(const std::vector<RankShare>& ranks) {
  RankShare all;
  for (const RankShare& rank : ranks) {
    all.peak_memory_mib = std::max(all.peak_memory_mib, rank.peak_memory_mib);  // null is below every number
    all.state_mib = std::max(all.state_mib, rank.state_mib);
    all.sent_mib = std::max(all.sent_mib, rank.sent_mib);
  }
  return all;
}

Json to_json(const ArmFacts& facts) {
  Json ranks = Json::array();
  for (const RankShare& share : facts.ranks) ranks.push_back(to_json(share));
  return {{"step_samples", facts.step_samples},
          {"period", facts.period},
          {"time_to_first_step_s", facts.time_to_first_step_s},
          {"peak_memory_mib", or_null(facts.peak_memory_mib)},
          {"plan", facts.plan},
          {"receipts", facts.receipts},
          {"price_per_hour", or_null(facts.price_per_hour)},
          {"ranks", ranks}};
}

ArmFacts facts_from(const Json& json) {
  ArmFacts facts{.step_samples = json.at("step_samples"),
                 .time_to_first_step_s = json.at("time_to_first_step_s"),
                 .peak_memory_mib = optional_at<double>(json, "peak_memory_mib"),
                 .plan = json.at("plan"),
                 .receipts = json.at("receipts"),
                 .price_per_hour = {},
                 .ranks = {}};
  if (!facts.receipts.is_object()) throw UserError("an arm's receipts are not a JSON object", ExitCode::data);
  facts.period = json.value("period", int64_t{1});
  if (json.contains("price_per_hour")) facts.price_per_hour = optional_at<double>(json, "price_per_hour");
  if (json.contains("ranks"))
    for (const Json& share : json.at("ranks")) facts.ranks.push_back(share_from(share));
  return facts;
}

}  // namespace trainopt
