#include "app/measure_options.h"

#include "base/error.h"
#include "base/units.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <random>

namespace trainopt {
namespace {

/// "1%" or "0.01", within (0, 1).
double share(const std::string& option, const std::string& text) {
  const auto value = parse_share(text);
  if (!value) throw UserError(fmt::format("{} must be a fraction such as 1% or 0.01: {}", option, text));
  return *value;
}

double seconds(const std::string& option, const std::string& text) {
  const auto duration = parse_duration(text);
  if (!duration || !(duration->seconds > 0))
    throw UserError(fmt::format("{} must be a time such as 90s or 5m: {}", option, text));
  return duration->seconds;
}

}  // namespace

std::vector<CLI::Option*> MeasureOptions::add_to(CLI::App& command, const std::string& standard_budget) {
  budget = standard_budget;
  return {
      command
          .add_option("--budget", budget,
                      "Time limit, but at least one block is measured; what is undecided by then is inconclusive")
          ->capture_default_str()
          ->type_name("TIME"),
      command.add_option("--min-effect", min_effect, "Differences smaller than this count as no effect")
          ->capture_default_str()
          ->type_name("FRACTION"),
      command
          .add_option("--precision", precision,
                      "Keep measuring until both ends of the interval are within FRACTION of the ratio")
          ->type_name("FRACTION"),
      command.add_option("--level", level, "Confidence level of verdicts")
          ->capture_default_str()
          ->type_name("FRACTION"),
      command
          .add_option("--coins", coins,
                      "Seed of the random choice of which arm starts a block; by default a new one each time")
          ->type_name("SEED"),
      command
          .add_option("--turn", turn,
                      "Minimum length of a turn, capped at a sixteenth of the budget; a turn is at least one step")
          ->capture_default_str()
          ->type_name("TIME"),
      command
          .add_option("--repeats", repeats,
                      "Measure exactly N blocks of four turns, or N pairs of processes, even after a decision")
          ->check(CLI::Range(1, 1'000'000))
          ->type_name("N"),
  };
}

CompareOptions MeasureOptions::options() const {
  CompareOptions options;
  options.level = share("--level", level);
  if (options.level < 0.5 || options.level > kHighestLevel)
    throw UserError(fmt::format("--level must be between 50% and {:g}%: {}", 100 * kHighestLevel, level));
  options.min_effect = share("--min-effect", min_effect);
  if (precision) options.precision = share("--precision", *precision);
  options.repeats = repeats;
  options.seed = coins.value_or(std::random_device()());
  options.turn_s = std::min(seconds("--turn", turn), budget_s() / 16);  // longer turns would leave no room for a block
  return options;
}

double MeasureOptions::budget_s() const { return seconds("--budget", budget); }

}  // namespace trainopt
