#include "compare/arm.h"

namespace trainopt {

Json to_json(const ArmFacts& facts) {
  return {{"step_samples", facts.step_samples}, {"time_to_first_step_s", facts.time_to_first_step_s},
          {"peak_memory_mib", facts.peak_memory_mib ? Json(*facts.peak_memory_mib) : Json()}, {"plan", facts.plan}, {"receipts", facts.receipts}};
}

ArmFacts facts_from(const Json& json) {
  const Json& memory = json.at("peak_memory_mib");
  return {.step_samples = json.at("step_samples"), .time_to_first_step_s = json.at("time_to_first_step_s"),
          .peak_memory_mib = memory.is_null() ? std::nullopt : std::optional(memory.get<double>()), .plan = json.at("plan"), .receipts = json.at("receipts")};
}

}  // namespace trainopt
