#include "compare/arm.h"

#include "compare/json_values.h"

namespace trainopt {

Json to_json(const ArmFacts& facts) {
  return {{"step_samples", facts.step_samples},
          {"time_to_first_step_s", facts.time_to_first_step_s},
          {"peak_memory_mib", or_null(facts.peak_memory_mib)},
          {"plan", facts.plan},
          {"receipts", facts.receipts}};
}

ArmFacts facts_from(const Json& json) {
  return {.step_samples = json.at("step_samples"),
          .time_to_first_step_s = json.at("time_to_first_step_s"),
          .peak_memory_mib = optional_at<double>(json, "peak_memory_mib"),
          .plan = json.at("plan"),
          .receipts = json.at("receipts")};
}

}  // namespace trainopt
