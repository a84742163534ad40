// Options that several commands share: how long and how surely to measure, and how to show a trace.
#pragma once

#include "base/clock.h"
#include "compare/comparison.h"
#include "trace/analysis.h"

#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace trainopt {

/// For `compare`, `ablate` and `run --ceilings`: how long to measure, and with what confidence.
struct MeasureOptions {
  std::string level = "95%", min_effect = "1%", turn = "250ms", budget;
  std::optional<std::string> precision;
  std::optional<int64_t> repeats;
  std::optional<uint64_t> coins;

  /// Returns the options it added.
  std::vector<CLI::Option*> add_to(CLI::App& command, const std::string& standard_budget);
  /// Throws UserError for an invalid fraction or duration.
  CompareOptions options() const;
  double budget_s() const;
  /// The budget; null: the number of repeats ends the measurement.
  std::optional<double> limit_s() const { return repeats ? std::nullopt : std::optional(budget_s()); }
  /// Deadline of a measurement that starts now.
  Clock::time_point end() const { return after(budget_s()); }
};

/// For commands that show a trace: --sort, --top, --group-by and --step.
struct TraceOptions {
  trace::AnalysisOptions analysis;
  trace::AnalysisView view;

  /// The options write into this object, which must outlive the parsing.
  void add_to(CLI::App& command);
};

}  // namespace trainopt
