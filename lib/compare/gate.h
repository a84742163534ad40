// A gate for continuous integration: which results of a comparison fail a job.
#pragma once

#include "compare/comparison.h"

#include <string>
#include <vector>

namespace trainopt {

/// What --fail-on names. Anything else passes.
struct GateRule {
  bool costs = false;
  /// With `costs`: only a cost of this share of A's throughput, or more, fails; 0: any cost.
  double at_cost = 0;
  bool inconclusive = false;       ///< what `costs` asks (without it: the verdict) is undecided
  bool numbers = false;            ///< the numbers of the two arms disagree
  std::vector<std::string> words;  ///< as given

  /// The ratio of throughputs on whose side the interval must lie for costs:3% to be decided: 0.97. nullopt: none.
  std::optional<double> boundary() const;
};

/// Parses "costs", "costs:3%" (or costs:0.03), "inconclusive" and "numbers", separated by commas. Throws UserError.
GateRule parse_gate(const std::string& list);

enum class NumbersSeen { agree, disagree, not_comparable, not_compared };

/// What a gate judges: one arm against another.
struct GateEvidence {
  std::string arm = "B", first = "A";  ///< the arm that is judged, and the one it is held against
  Verdict verdict = Verdict::inconclusive;
  std::optional<Interval> interval;  ///< interval of the ratio of the arm's throughput to the first's
  NumbersSeen numbers = NumbersSeen::not_compared;
  std::string disagreement;  ///< the first, if the numbers disagree
  std::string to_decide;     ///< what would decide it: "a --budget of about 12m would decide". Empty: not known
  bool arm_failed = false;   ///< an arm failed before the comparison had ended
};
/// Every arm against the first one.
std::vector<GateEvidence> evidence_of(const Comparison& comparison, const GateRule& rule);

struct GateDecision {
  bool failed = false;
  std::string reason;  ///< "B costs at least 4.2 %; costs:3% allows less than 3 %"
};
/// Fails if the evidence shows what the rule names, or if an arm failed. costs:3% judges the cost that has been shown,
/// the end of the interval nearer to 1, not the one measured.
GateDecision decide(const GateRule& rule, const GateEvidence& evidence);

/// One decision about several arms against the first: fails if it fails for any of them.
GateDecision decide_all(const GateRule& rule, const std::vector<GateEvidence>& arms);
/// The decision about a comparison: about B, or about all arms.
GateDecision decide(const GateRule& rule, const Comparison& comparison);

/// "gate: failed: " and the reason.
std::string gate_text(const GateDecision& decision);
/// {"fail_on": […], "failed": …, "reason": …}.
Json to_json(const GateRule& rule, const GateDecision& decision);

}  // namespace trainopt
