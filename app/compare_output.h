// What all comparisons share: how a result is printed, gated and kept.
#pragma once

#include "app/arguments.h"
#include "app/shared_options.h"
#include "app/status.h"
#include "base/error.h"
#include "base/log.h"
#include "compare/baseline.h"
#include "compare/gate.h"
#include "compare/measure.h"
#include "compare/output/table.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace trainopt {

// --fail-on of `compare`: the exit code that a result gets in continuous integration.

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

/// How the result of a comparison is printed, what --fail-on makes of it, and where it is written.
struct CompareOutput {
  bool json = false, markdown = false;
  std::string run_dir;  ///< empty: a new folder
  Gate gate = {};
  std::optional<double> budget_s = {};  ///< time for the whole command; null: it ends when all is done

  ResultForm form() const { return json ? ResultForm::json : markdown ? ResultForm::markdown : ResultForm::text; }
};

/// How results look on this process's standard output.
TextStyle text_style(const OutputOptions& console);
/// Shows progress in `status`, and heeds the signals of this process.
Observer observer_of(Status& status, Explain explain);
/// After the result is printed and written: says where it is, and throws the failure that
/// ended it, if any. Returns the exit code: that of a signal or `code`, which the gate gave.
int end_comparison(const std::filesystem::path& folder, const CompareOutput& output, const OutputOptions& console,
                   const std::string& failure, ExitCode failure_code, int code);

/// Writes the result so far with `write`. A full disk must not end the measurement, so it warns, once.
template <class Result>
std::function<void(const Result&)> keep_with(std::function<void(const Result&)> write) {
  return [write = std::move(write), warned = false](const Result& result) mutable {
    try {
      write(result);
    } catch (const UserError& error) {  // named recovery: the measurement goes on
      if (!std::exchange(warned, true)) log_warning("the result so far was not kept: {}", error.what());
    }
  };
}

/// Prints a comparison, measured now or stored. Returns the exit code that --fail-on gives it.
int print_comparison(const Comparison& comparison, const CompareOutput& output, const TextStyle& style);

/// Measures the arms, prints and writes the result into a folder with the name of `named`; returns the exit code. Rank
/// 0 alone runs this. Throws for an arm that cannot run here before anything is created, and the failure that ended the
/// comparison after what was measured is printed and written.
int compare_and_print(ArmsToCompare arms, Recipe named, const CompareOptions& options, Clock::time_point until,
                      const CompareOutput& output, ArmFactory& factory, const Explain& explain,
                      const OutputOptions& console);

// trainopt compare RECIPE --each KEY=a,b,c: several arms.

struct EachArguments {
  Sources sources;                  ///< one recipe and its overrides
  std::string each;                 ///< "KEY=a,b,c"
  std::vector<std::string> faults;  ///< injected into the last arm
  bool own_processes = false, with_numbers = true, with_noise_floor = true;
};

/// Measures, prints and writes; returns the exit code. Throws UserError for a mistake in the arguments before anything
/// is created, and the failure of an arm after its results are printed and written.
int compare_each(const EachArguments& arguments, const MeasureOptions& measure, const CompareOutput& output,
                 const Environment& environment, const OutputOptions& console);

// trainopt compare RECIPE --against FILE: a fresh measurement against a stored one.

struct AgainstArguments {
  std::filesystem::path stored;
  std::string name;  ///< the recipe's name
  Recipe recipe;
};

/// Measures the recipe, prints and writes the result. Returns the exit code. Throws UserError for a mistake in the
/// arguments before anything is created, and the failure of an arm after its results are printed and written.
int compare_against(const AgainstArguments& arguments, const MeasureOptions& measure, const CompareOutput& output,
                    const Environment& environment, const OutputOptions& console);

/// Prints a stored result of compare_against(), judged again. Returns the exit code.
int show_against(const std::filesystem::path& folder, const CompareOutput& output, const TextStyle& style);

}  // namespace trainopt
