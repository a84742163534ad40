#include "app/gate.h"

#include "base/error.h"
#include "compare/table.h"

#include <CLI/CLI.hpp>

namespace trainopt {

Json GateResult::in(Json result) const {
  if (decision_) result["gate"] = to_json(rule_, *decision_);
  return result;
}

std::string GateResult::markdown() const { return decision_ ? fmt::format("\n**{}**\n", gate_text(*decision_)) : ""; }

std::string GateResult::text(bool color) const {
  if (!decision_) return {};
  const std::string line = gate_text(*decision_);
  return (color ? colored(line, decision_->failed ? kRed : kGreen) : line) + "\n";
}

int GateResult::exit_code() const {
  return static_cast<int>(decision_ && decision_->failed ? ExitCode::gate : ExitCode::done);
}

void Gate::add_to(CLI::App& command) {
  command
      .add_option("--fail-on", list,
                  "End with exit code 10 if B costs; costs:3%: if the cost shown, the end of the interval nearer to 1, "
                  "is 3% or more (and measure until that is decided); inconclusive: if that is open; numbers: if the "
                  "numbers disagree. Several are separated by commas")
      ->type_name("LIST")
      ->each([](const std::string& word) {
        if (word.empty()) parse_gate(word);
      });
}

std::optional<GateRule> Gate::rule() const { return list.empty() ? std::nullopt : std::optional(parse_gate(list)); }

GateResult Gate::judge(const std::function<GateEvidence(const GateRule&)>& evidence) const {
  const auto asked = rule();
  return asked ? GateResult(*asked, decide(*asked, evidence(*asked))) : GateResult();
}

void Gate::refuse(const std::string& why) const {
  if (!list.empty()) throw UserError(fmt::format("--fail-on has no verdict to judge: {}", why));
}

}  // namespace trainopt
