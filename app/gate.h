// --fail-on of `compare`: the exit code that a result gets in continuous integration.
#pragma once

#include "compare/gate.h"

#include <functional>
#include <optional>
#include <string>

namespace CLI {
class App;
}  // namespace CLI

namespace trainopt {

enum class ResultForm { text, markdown, json };

/// What --fail-on makes of a result; without the option nothing, and the exit code is 0.
class GateResult {
 public:
  GateResult() = default;
  GateResult(GateRule rule, GateDecision decision) : rule_(std::move(rule)), decision_(std::move(decision)) {}

  /// Prints the result in this form, then the decision. Returns the exit code.
  int print(Json json, const std::string& markdown, const std::string& text, ResultForm form, bool color) const;

 private:
  GateRule rule_;
  std::optional<GateDecision> decision_;
};

/// The option.
struct Gate {
  std::string list;

  void add_to(CLI::App& command);
  /// nullopt: not given. Throws UserError for a list that is no rule.
  std::optional<GateRule> rule() const;
  GateResult judge(const std::function<GateDecision(const GateRule&)>& decision) const;
  /// Throws UserError if the option is given: `why` there is nothing to judge.
  void refuse(const std::string& why) const;
};

}  // namespace trainopt
