#include "train/receipt.h"

namespace trainopt {

std::string PlannedSwitch::text() const {
  if (!outcome.has_effect) return "no effect: " + outcome.text;
  return outcome.text + (doubt.empty() ? "" : "; not expected to pay here: " + doubt);
}

std::vector<SwitchReceipt> receipts(const std::vector<PlannedSwitch>& switches, const StepTrace& seen) {
  std::vector<SwitchReceipt> all;
  for (const auto& planned : switches) {
    Receipt receipt;
    if (!planned.outcome.has_effect)
      receipt = {.observed = "nothing", .effective = false, .reason = planned.outcome.text};
    else if (seen.step == 0)
      receipt = {.observed = "nothing: no step was completed",
                 .effective = false,
                 .reason = "the run ended before a step could be observed"};
    else
      receipt = planned.outcome.receipt(seen);
    all.push_back({planned.name, planned.requested, std::move(receipt)});
  }
  return all;
}

Json receipts_json(const std::vector<SwitchReceipt>& receipts) {
  Json json = Json::object();
  for (const auto& [name, requested, receipt] : receipts)
    json[name] = {{"requested", requested},
                  {"observed", receipt.observed},
                  {"effective", receipt.effective},
                  {"reason", receipt.reason}};
  return json;
}

}  // namespace trainopt
