#include "app/gate.h"

#include "app/arguments.h"
#include "base/error.h"
#include "base/print.h"
#include "compare/table.h"

#include <CLI/CLI.hpp>

#include <cstdio>

namespace trainopt {

int GateResult::print(Json json, const std::string& markdown, const std::string& text, ResultForm form,
                      bool color) const {
  const bool failed = decision_ && decision_->failed;
  const std::string line = decision_ ? gate_text(*decision_) : "";
  if (form == ResultForm::json) {
    if (decision_) json["gate"] = to_json(rule_, *decision_);
    print_json(json);
  } else {
    print_colored(form == ResultForm::markdown ? markdown : text);
    if (decision_ && form == ResultForm::markdown) print_colored(fmt::format("\n**{}**\n", line));
    if (decision_ && form == ResultForm::text)
      print_colored(fmt::format("{}\n", (color ? colored(line, failed ? kRed : kGreen) : line)));
  }
  return static_cast<int>(failed ? ExitCode::gate : ExitCode::done);
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

GateResult Gate::judge(const std::function<GateDecision(const GateRule&)>& decision) const {
  const auto asked = rule();
  return asked ? GateResult(*asked, decision(*asked)) : GateResult();
}

void Gate::refuse(const std::string& why) const {
  if (!list.empty()) throw UserError(fmt::format("--fail-on has no verdict to judge: {}", why));
}

}  // namespace trainopt
