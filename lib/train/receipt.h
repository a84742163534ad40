// What was requested of a switch, what it is expected to do here, and what was observed.
#pragma once

#include "base/json.h"
#include "train/observe/step_trace.h"

#include <functional>
#include <string>
#include <vector>

namespace trainopt {

struct Plan;

/// What was observed of a switch in a run.
struct Receipt {
  std::string observed;  ///< in words and numbers
  bool effective = true;
  std::string reason;  ///< why it was not, or only partly, effective; empty if it was
};
using MakeReceipt = std::function<Receipt(const StepTrace&)>;

/// The outcome of applying a switch to a plan.
struct Outcome {
  bool has_effect = true;
  std::string text;     ///< what it does here, or why it does nothing here
  MakeReceipt receipt;  ///< set only with effect
  /// Why the switch is not expected to pay on this machine, given the complete plan; empty: no such reason.
  std::function<std::string(const Plan&)> doubt = {};

  Outcome doubted(std::function<std::string(const Plan&)> why) && {
    doubt = std::move(why);
    return std::move(*this);
  }
  static Outcome applied(std::string what, MakeReceipt receipt) { return {true, std::move(what), std::move(receipt)}; }
  static Outcome none(std::string why) { return {false, std::move(why), {}}; }
};

/// A switch that the recipe turned on.
struct PlannedSwitch {
  std::string name, requested;  ///< "num_workers", "2"
  Outcome outcome;
  std::string doubt = {};  ///< why it is not expected to pay on this machine; empty: no such reason

  /// What it does here, or why it does nothing or is not expected to pay.
  std::string text() const;
};

struct SwitchReceipt {
  std::string name, requested;
  Receipt receipt;
};
std::vector<SwitchReceipt> receipts(const std::vector<PlannedSwitch>& switches, const StepTrace& seen);
/// The receipts as in summary.json: {<switch>: {requested, observed, effective, reason}}.
Json receipts_json(const std::vector<SwitchReceipt>& receipts);

}  // namespace trainopt
