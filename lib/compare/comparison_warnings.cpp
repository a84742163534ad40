#include "compare/comparison_warnings.h"

#include "base/counted.h"
#include "base/units.h"
#include "compare/comparison_text.h"
#include "metrics/conditions.h"
#include "metrics/format.h"
#include "metrics/summary.h"
#include "statistics/spread.h"

#include <algorithm>
#include <cmath>

namespace trainopt {
namespace {

constexpr double kBusyPct = 10;     // of the allowed cores: warn if other programs take more
constexpr double kLongTurn = 1.25;  // times the median

void add_noise(const Comparison& c, std::vector<std::string>& all) {
  if (c.noise && c.noise->interval && !c.noise->interval->contains(1) &&
      judge(*c.noise->interval, c.min_effect) != Verdict::no_effect)
    all.push_back(fmt::format("A against itself already seemed to differ ({}): be careful with small effects",
                              percent_faster(*c.noise->interval)));
}

/// Warns if long turns matter: the ratio of a typical block and that of the total time disagree.
void add_long_turns(const Comparison& c, std::vector<std::string>& all) {
  if (!c.typical || !c.interval) return;
  const Verdict typical = judge(*c.typical, c.min_effect);
  const bool disjoint = c.typical->high < c.interval->low || c.interval->high < c.typical->low;
  if (!disjoint && (typical == c.verdict || typical == Verdict::inconclusive || typical == Verdict::no_effect)) return;
  all.push_back(fmt::format(
      "in a typical {} B against A is {}, over the total time {}: slow turns took {:.1f} % of A's time and {:.1f} % of "
      "B's",
      c.own_processes ? "pair" : "block", percent_faster(*c.typical), percent_faster(c.ratio),
      100 * long_turn_share(c, true), 100 * long_turn_share(c, false)));
}

void add_carry_over(const Comparison& c, std::vector<std::string>& all) {
  if (!c.carry_over || !c.carry_over->interval || c.carry_over->interval->contains(1)) return;
  if (std::abs(std::log(c.carry_over->ratio)) < std::log1p(c.min_effect) / 2) return;
  all.push_back(
      fmt::format("a turn's time depends on which arm took the previous turn: without this, B against A would be about "
                  "{}, not {}; longer turns (--turn) bring the two together",
                  percent_faster(c.ratio / c.carry_over->ratio), percent_faster(c.ratio)));
}

std::string long_time(double seconds) {
  constexpr double kDay = 86400;
  if (seconds < 2 * kDay) return human_seconds(seconds);
  return seconds < 365 * kDay ? fmt::format("{:.0f} days", seconds / kDay) : "more than a year";
}

struct Needed {
  int64_t measurements, had;
  double seconds;
};

/// nullopt: too few measurements to tell, or there were as many.
std::optional<Needed> needed_for(const Comparison& c, double effect) {
  std::vector<double> differences;
  for (const Measurement& m : measurements_of(c.blocks, c.own_processes))
    differences.push_back(std::log(m.seconds_per_sample.a / m.seconds_per_sample.b));
  if (differences.size() < 2) return std::nullopt;
  const auto had = static_cast<int64_t>(differences.size());
  const int64_t needed =
      measurements_needed(standard_deviation(differences),
                          {.level = c.level, .min_effect = effect, .longest_stall = c.longest_stall}, c.turns() / had);
  if (needed <= had) return std::nullopt;
  return Needed{needed, had, c.seconds * static_cast<double>(needed) / static_cast<double>(had)};
}

void add_too_few(const Comparison& c, std::vector<std::string>& all) {
  if (c.verdict != Verdict::inconclusive) {
    if (c.ended != "decided" && c.turns() < kTurnsToSeeStalls)
      all.push_back(
          fmt::format("only {} of each arm: {} may have been missed", counted(c.turns(), "turn"), unseen_stalls(c)));
    return;
  }
  if (const auto needed = needed_for(c, c.min_effect))
    all.push_back(fmt::format("to find or rule out a difference of {:.1f} % takes about {} here ({}); there were {}",
                              100 * c.min_effect, counted(needed->measurements, c.own_processes ? "pair" : "block"),
                              long_time(needed->seconds), needed->had));
}

}  // namespace

std::string time_to_decide(const Comparison& c, double effect) {
  const auto needed = needed_for(c, effect);
  return needed ? long_time(needed->seconds) : "";
}

double long_turn_share(const Comparison& c, bool of_a) {
  std::vector<double> times;
  for (const Block& block : c.blocks)
    for (size_t i = 0; i < block.turns.size(); ++i)
      if (block.is_a(i) == of_a) times.push_back(block.turns[i].seconds);
  if (times.empty()) return 0;
  const double median = percentile(times, 0.5);
  double total = 0, beyond = 0;
  for (const double time : times) {
    total += time;
    if (time > kLongTurn * median) beyond += time - median;
  }
  return beyond / total;
}

std::string unseen_stalls(const Comparison& c) {
  double seconds = 0;
  for (const Block& block : c.blocks) seconds += block.seconds(true) + block.seconds(false);
  const double every = stalls_missed(c.turns()), turn_s = seconds / static_cast<double>(2 * c.turns());
  return fmt::format("stalls that come less often than once in {:.0f} turns ({} of training)", every,
                     human_seconds(every * turn_s));
}

std::vector<std::string> conditions(double other_load_pct, int64_t throttle) {
  std::vector<std::string> all;
  if (other_load_pct > kBusyPct)
    all.push_back(fmt::format("other programs kept {:.0f} % of the allowed cores busy", other_load_pct));
  if (throttle != 0)
    all.push_back(fmt::format("the GPU's clock was throttled in some turns: {}", throttle_reasons(throttle)));
  return all;
}

std::vector<std::string> conditions_of(const Comparison& c) {
  double busy = 0, known = 0;
  int64_t throttle = 0;
  for (const Block& block : c.blocks) {
    const double seconds = block.seconds(true) + block.seconds(false);
    if (block.other_load_pct) busy += *block.other_load_pct * seconds, known += seconds;
    for (const Turn& turn : block.turns) throttle |= turn.throttle.value_or(0);
  }
  return conditions(known > 0 ? busy / known : 0, throttle);
}

std::vector<std::string> warnings_of(const Comparison& comparison) {
  std::vector<std::string> all = conditions_of(comparison);
  add_noise(comparison, all);
  add_long_turns(comparison, all);
  add_carry_over(comparison, all);
  add_too_few(comparison, all);
  return all;
}

}  // namespace trainopt
