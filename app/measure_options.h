// How long and how surely `compare`, `ablate` and `run --ceilings` measure.
#pragma once

#include "base/clock.h"
#include "compare/comparison.h"

#include <CLI/CLI.hpp>

#include <string>

namespace trainopt {

struct MeasureOptions {
  std::string level = "95%", min_effect = "1%", turn = "250ms", budget;
  std::optional<std::string> precision;
  std::optional<int64_t> repeats;
  std::optional<uint64_t> coins;

  /// The options it made.
  std::vector<CLI::Option*> add_to(CLI::App& command, const std::string& standard_budget);
  /// Throws UserError for texts that are no shares or no duration.
  CompareOptions options() const;
  double budget_s() const;
  /// When a measurement that begins now must end.
  Clock::time_point end() const { return after(budget_s()); }
};

}  // namespace trainopt
