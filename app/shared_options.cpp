#include "app/shared_options.h"

#include "base/error.h"
#include "base/units.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

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
          .add_option("--budget", budget, "Time limit, preparation included; what is undecided by then is inconclusive")
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

namespace {

const std::map<std::string, trace::SortBy> kSortings = {{"cpu_self", trace::SortBy::cpu_self},
                                                        {"cpu_total", trace::SortBy::cpu_total},
                                                        {"device_self", trace::SortBy::device_self},
                                                        {"device_total", trace::SortBy::device_total},
                                                        {"calls", trace::SortBy::calls}};
const std::map<std::string, trace::GroupBy> kGroupings = {
    {"name", trace::GroupBy::name}, {"shape", trace::GroupBy::shape}, {"unit", trace::GroupBy::unit}};

/// Refuses a word that is not a key of `choices`, and names these.
template <class Value>
CLI::Option* add_choice(CLI::App& command, const char* option, const std::map<std::string, Value>& choices,
                        const std::function<void(Value)>& set, const char* help) {
  std::vector<std::string> words;
  for (const auto& [word, value] : choices) words.push_back(word);
  return command
      .add_option_function<std::string>(
          option, [&choices, set](const std::string& word) { set(choices.at(word)); }, help)
      ->check(CLI::IsMember(words))
      ->type_name("WORD");
}

int64_t bytes_from(const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes || bytes->count <= 0)
    throw UserError(fmt::format("--max-json must be a size such as 4GiB: {}", text), ExitCode::recipe);
  return bytes->count;
}

}  // namespace

void TraceOptions::add_to(CLI::App& command) {
  add_choice<trace::SortBy>(
      command, "--sort", kSortings, [this](trace::SortBy by) { view.sort = by; },
      "Order of the operations (default: device_self with a device, otherwise cpu_self)");
  command
      .add_option_function<size_t>(
          "--top", [this](size_t top) { view.top = top; },
          "Rows of operations, kernels and units (default: 15 in the text, otherwise all)")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  add_choice<trace::GroupBy>(
      command, "--group-by", kGroupings, [this](trace::GroupBy by) { analysis.group_by = by; },
      "What distinguishes operations besides the name: nothing, the input shapes or the unit of the model");
  command
      .add_option_function<int64_t>(
          "--step", [this](int64_t step) { analysis.step = step; }, "Only this step")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000'000'000}))
      ->type_name("N");
  command
      .add_option_function<std::string>(
          "--max-json", [this](const std::string& text) { analysis.most_bytes = bytes_from(text); },
          "Most JSON to read from a trace, unpacked")
      ->default_str("4GiB")
      ->type_name("SIZE");
}

}  // namespace trainopt
