#include "compare/gate.h"

#include "base/error.h"
#include "base/units.h"
#include "compare/output/comparison_text.h"
#include "compare/output/remarks.h"

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

constexpr const char* kWords = "--fail-on takes costs, costs:3%, inconclusive and numbers, separated by commas";

std::vector<std::string> split_at_commas(const std::string& list) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    words.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

/// 0.03 from "3%" or "0.03".
double cost_of(const std::string& word, std::string_view text) {
  const auto share = parse_share(text);
  if (!share) throw UserError(fmt::format("{}; the cost must be a fraction such as 3% or 0.03: {}", kWords, word));
  return *share;
}

std::string cost_text(double share) { return fmt::format("{:g} %", 100 * share); }

/// The answer to what the rule asks about speed.
enum class Answer { shown, ruled_out, undecided };

Answer answer(const GateRule& rule, const GateEvidence& e) {
  if (const auto boundary = rule.boundary()) {
    if (!e.interval) return Answer::undecided;
    if (e.interval->high <= *boundary) return Answer::shown;
    return e.interval->low > *boundary ? Answer::ruled_out : Answer::undecided;
  }
  if (e.verdict == Verdict::inconclusive) return Answer::undecided;
  return e.verdict == Verdict::costs ? Answer::shown : Answer::ruled_out;
}

/// Two decimals, so that a cost just below the allowed one is not rounded to it.
std::string shown_cost(const GateRule& rule, const GateEvidence& e) {
  const std::string cost = fmt::format("{} costs at least {:.2f} %", e.arm, 100 * (1 - e.interval->high));
  if (rule.at_cost == 0) return cost;
  return fmt::format("{}; costs:{:g}% allows less than {}", cost, 100 * rule.at_cost, cost_text(rule.at_cost));
}

std::string ruled_out(const GateRule& rule, const GateEvidence& e) {
  if (rule.at_cost > 0)
    return fmt::format("{} costs less than {}; it is {} against {}", e.arm, cost_text(rule.at_cost),
                       percent_faster(*e.interval), e.first);
  return fmt::format("the verdict is {}", text(e.verdict));
}

std::string undecided(const GateRule& rule, const GateEvidence& e) {
  if (rule.at_cost == 0) return "inconclusive";
  return fmt::format("inconclusive: whether {} costs {} or more is open", e.arm, cost_text(rule.at_cost));
}

/// What the gate leaves open about the numbers; empty: nothing.
std::string numbers_left_open(const GateRule& rule, const GateEvidence& e) {
  if (e.numbers == NumbersSeen::disagree) return "the numbers disagree, and --fail-on does not name that";
  if (!rule.numbers || e.numbers == NumbersSeen::agree) return {};
  return e.numbers == NumbersSeen::not_comparable ? "the numbers are not comparable" : "the numbers were not compared";
}

void add_numbers(const std::optional<Numerics>& numerics, GateEvidence& e) {
  if (!numerics) return;
  e.numbers = !numerics->not_comparable.empty() ? NumbersSeen::not_comparable
              : numerics->agree()               ? NumbersSeen::agree
                                                : NumbersSeen::disagree;
  if (e.numbers == NumbersSeen::disagree) e.disagreement = numerics->disagreements().front();
}

}  // namespace

std::optional<double> GateRule::boundary() const { return at_cost > 0 ? std::optional(1 - at_cost) : std::nullopt; }

GateRule parse_gate(const std::string& list) {
  GateRule rule;
  rule.words = split_at_commas(list);
  for (const std::string& word : rule.words) {
    constexpr std::string_view kCosts = "costs:";
    const bool with_cost = word.starts_with(kCosts);
    const bool known = with_cost || word == "costs" || word == "inconclusive" || word == "numbers";
    if (!known) throw UserError(fmt::format("{}: {}", kWords, list));
    bool& named = with_cost || word == "costs" ? rule.costs : word == "numbers" ? rule.numbers : rule.inconclusive;
    if (named) throw UserError(fmt::format("--fail-on names the same twice; remove one: {}", list));
    named = true;
    if (with_cost) rule.at_cost = cost_of(word, std::string_view(word).substr(kCosts.size()));
  }
  return rule;
}

std::vector<GateEvidence> evidence_of(const Comparison& c, const GateRule& rule) {
  std::vector<GateEvidence> all;
  for (size_t arm = 1; arm < c.arms.size(); ++arm) {
    const PairResult& pair = c.pair(0, arm);
    GateEvidence e;
    e.verdict = pair.verdict;
    e.interval = pair.interval;
    e.arm_failed = c.sampling.ended == "failed";
    add_numbers(c.numerics[arm], e);
    if (c.is_a_and_b()) {
      // Half a per mille is as near to the boundary as it is worth measuring.
      const double distance =
          rule.boundary() ? std::abs(std::log(pair.ratio / *rule.boundary())) : std::log1p(c.min_effect);
      const std::string time = time_to_decide(pair, std::expm1(std::max(distance, 5e-4)));
      if (!time.empty()) e.to_decide = fmt::format("a --budget of about {} would decide", time);
    } else {
      e.arm = c.arms[arm].name;
      e.first = c.arms.front().name;
    }
    all.push_back(std::move(e));
  }
  return all;
}

GateDecision decide(const GateRule& rule, const GateEvidence& e) {
  std::vector<std::string> faults, passes;
  if (e.arm_failed) faults.push_back("an arm failed before the comparison had ended");
  const Answer found = answer(rule, e);
  std::string open = undecided(rule, e);
  if (found == Answer::undecided && !rule.inconclusive) open += ", and --fail-on does not name that";
  if (!e.to_decide.empty()) open += "; " + e.to_decide;
  if (found == Answer::shown && rule.costs)
    faults.push_back(shown_cost(rule, e));
  else if (found == Answer::undecided)
    (rule.inconclusive ? faults : passes).push_back(open);
  else if (found == Answer::shown)
    passes.push_back(fmt::format("{} costs, and --fail-on does not name that", e.arm));
  else
    passes.push_back(ruled_out(rule, e));
  if (rule.numbers && e.numbers == NumbersSeen::disagree)
    faults.push_back(fmt::format("the numbers of {} disagree: {}", e.arm, e.disagreement));
  else if (std::string left = numbers_left_open(rule, e); !left.empty())
    passes.push_back(std::move(left));
  return {.failed = !faults.empty(), .reason = fmt::format("{}", fmt::join(faults.empty() ? passes : faults, "; "))};
}

GateDecision decide_all(const GateRule& rule, const std::vector<GateEvidence>& arms) {
  std::vector<std::string> faults, passes;
  for (const GateEvidence& e : arms) {
    const GateDecision one = decide(rule, e);
    (one.failed ? faults : passes).push_back(fmt::format("{} against {}: {}", e.arm, e.first, one.reason));
  }
  return {.failed = !faults.empty(), .reason = fmt::format("{}", fmt::join(faults.empty() ? passes : faults, "; "))};
}

GateDecision decide(const GateRule& rule, const Comparison& comparison) {
  const std::vector<GateEvidence> arms = evidence_of(comparison, rule);
  return comparison.is_a_and_b() ? decide(rule, arms.front()) : decide_all(rule, arms);
}

std::string gate_text(const GateDecision& decision) {
  return fmt::format("gate: {}: {}", decision.failed ? "failed" : "passed", decision.reason);
}

Json to_json(const GateRule& rule, const GateDecision& decision) {
  return {{"fail_on", rule.words}, {"failed", decision.failed}, {"reason", decision.reason}};
}

}  // namespace trainopt
