#include "compare/output/remarks.h"

#include "base/units.h"
#include "compare/output/comparison_text.h"
#include "metrics/conditions.h"
#include "metrics/format.h"
#include "metrics/summary.h"
#include "statistics/spread.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace trainopt {
namespace {

constexpr double kBusyPct = 10;     // share of the allowed cores: warn if other programs take more
constexpr double kLongTurn = 1.25;  // multiple of the median

/// Warns if long turns matter: the ratio of a typical block and that of the total time disagree.
void add_long_turns(const PairResult& c, std::vector<std::string>& all) {
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

void add_carry_over(const PairResult& c, std::vector<std::string>& all) {
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

int64_t measurements_taken(const PairResult& c) {
  return c.own_processes ? c.process_pairs() : static_cast<int64_t>(c.blocks.size());
}

/// About how long so many measurements take.
double seconds_for(const PairResult& c, int64_t measurements) {
  return c.seconds * static_cast<double>(measurements) / static_cast<double>(measurements_taken(c));
}

/// About how many measurements find or rule out `effect`. nullopt: too few to tell, or there were as many.
std::optional<int64_t> needed_for(const PairResult& c, double effect) {
  std::vector<double> differences;
  for (const Measurement& m : measurements_of(c.blocks, c.own_processes))
    differences.push_back(std::log(m.seconds_per_sample.a / m.seconds_per_sample.b));
  if (differences.size() < 2) return std::nullopt;
  const auto had = static_cast<int64_t>(differences.size());
  const auto needed =
      measurements_needed(standard_deviation(differences),
                          {.level = c.level, .min_effect = effect, .longest_stall = c.longest_stall}, c.turns() / had);
  return needed > had ? std::optional(needed) : std::nullopt;
}

}  // namespace

double long_turn_share(const PairResult& c, bool of_a) {
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

std::string unseen_stalls(int64_t turns, double turn_s) {
  const double every = stalls_missed(turns);
  return fmt::format("stalls that come less often than once in {} ({} of training)",
                     counted(std::llround(every), "turn"), human_seconds(every * turn_s));
}

std::string unseen_stalls(const PairResult& c) {
  double seconds = 0;
  for (const Block& block : c.blocks) seconds += block.seconds(true) + block.seconds(false);
  return unseen_stalls(c.turns(), seconds / static_cast<double>(2 * c.turns()));
}

std::vector<std::string> conditions_of(const std::vector<Round>& rounds) {
  std::vector<std::string> all;
  double busy = 0, known = 0;
  int64_t throttle = 0;
  for (const Round& round : rounds) {
    double seconds = 0;
    for (const Turn& turn : round.turns) {
      seconds += turn.seconds;
      throttle |= turn.throttle.value_or(0);
    }
    if (round.other_load_pct) busy += *round.other_load_pct * seconds, known += seconds;
  }
  if (busy > kBusyPct * known)
    all.push_back(fmt::format("other programs kept {:.0f} % of the allowed cores busy", busy / known));
  if (throttle != 0)
    all.push_back(fmt::format("the GPU's clock was throttled in some turns: {}", throttle_reasons(throttle)));
  return all;
}

void add_noise_warning(const std::optional<NoiseFloor>& noise, double min_effect, std::vector<std::string>& all) {
  if (noise && noise->interval && !noise->interval->contains(1) &&
      judge(*noise->interval, min_effect) != Verdict::no_effect)
    all.push_back(fmt::format("A against itself already seemed to differ ({}): be careful with small effects",
                              percent_faster(*noise->interval)));
}

std::vector<std::string> warnings_about_arms(const PairResult& comparison) {
  std::vector<std::string> all;
  add_long_turns(comparison, all);
  add_carry_over(comparison, all);
  return all;
}

std::string time_to_decide(const PairResult& c, double effect) {
  const auto needed = needed_for(c, effect);
  return needed ? long_time(seconds_for(c, *needed)) : "";
}

void add_few_turns_warning(const PairResult& c, std::vector<std::string>& all) {
  if (c.ended != "decided" && c.turns() < kTurnsToSeeStalls)
    all.push_back(
        fmt::format("only {} of each arm: {} may have been missed", counted(c.turns(), "turn"), unseen_stalls(c)));
}

namespace {

/// The undecided pair that needs most to find or rule out `effect`, and how much.
struct Slowest {
  const PairResult* pair = nullptr;
  int64_t measurements = 0;
};

Slowest slowest_to_decide(const std::vector<PairResult>& pairs,
                          const std::function<double(const PairResult&)>& effect) {
  Slowest slowest;
  for (const PairResult& pair : pairs)
    if (pair.verdict == Verdict::inconclusive)
      if (const auto needed = needed_for(pair, effect(pair)); needed && *needed > slowest.measurements)
        slowest = {&pair, *needed};
  return slowest;
}

/// With room for an estimate that is too low.
double budget_for(const Slowest& slowest) {
  constexpr double kRoom = 1.2;
  return kRoom * seconds_for(*slowest.pair, slowest.measurements);
}

/// How far the measured ratio is from no effect, or min_effect if that is more.
double measured_effect(const PairResult& pair) {
  return std::max(pair.min_effect, std::expm1(std::abs(std::log(pair.ratio))));
}

}  // namespace

std::vector<ToDecide> what_decides(const std::vector<PairResult>& pairs, const std::vector<Round>& rounds,
                                   std::string_view unit) {
  std::vector<ToDecide> all;
  const auto undecided = std::find_if(pairs.begin(), pairs.end(),
                                      [](const PairResult& pair) { return pair.verdict == Verdict::inconclusive; });
  if (undecided == pairs.end()) return all;
  const double min_effect = undecided->min_effect;
  const Slowest least = slowest_to_decide(pairs, [&](const PairResult&) { return min_effect; });
  const Slowest measured = slowest_to_decide(pairs, measured_effect);
  if (measured.pair && measured_effect(*measured.pair) > 2 * min_effect)
    all.push_back({fmt::format("a difference as large as measured, {}, shows after about {} ({})",
                               percent_faster(measured.pair->ratio), counted(measured.measurements, unit),
                               long_time(seconds_for(*measured.pair, measured.measurements))),
                   budget_for(measured)});
  if (least.pair)
    all.push_back(
        {fmt::format("to find or rule out a difference of {:.1f} % takes about {} here ({}); there were {}",
                     100 * min_effect, counted(least.measurements, unit),
                     long_time(seconds_for(*least.pair, least.measurements)), measurements_taken(*least.pair)),
         budget_for(least)});
  constexpr double kLonger = 4;
  if (all.empty())
    all.push_back({fmt::format("at least a few more {}s are needed", unit), kLonger * undecided->seconds});
  constexpr double kLong = 3600;  // seconds
  if (least.pair && budget_for(least) > kLong && min_effect < 0.05)
    all.push_back({fmt::format("if differences below {0:g} % do not matter, --min-effect {0:g}% decides sooner",
                               std::min(50.0, 1000 * min_effect)),
                   0});
  if (!conditions_of(rounds).empty()) all.push_back({"a quieter machine would need fewer blocks", 0});
  return all;
}

}  // namespace trainopt
