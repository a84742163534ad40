#include "compare/comparison.h"

#include "base/error.h"
#include "compare/output/remarks.h"
#include "metrics/summary.h"
#include "statistics/paired.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trainopt {
namespace {

CompareOptions options_of(const Comparison& c) {
  CompareOptions options;
  options.level = c.level;
  options.min_effect = c.min_effect;
  options.seed = c.seed;
  return options;
}

/// The differences of carry_over() for two arms.
std::vector<double> middle_changes(const std::vector<Round>& rounds, PairOfArms pair) {
  std::vector<double> differences;
  for (const Round& round : rounds) {
    const size_t last = round.order.back(), after = round.arms();
    if (last != pair.a && last != pair.b) continue;
    const double change = std::log(round.turns[after - 1].seconds / round.turns[after].seconds);
    differences.push_back(last == pair.b ? change : -change);
  }
  return differences;
}

PairResult result_of_pair(const Comparison& c, PairOfArms arms, const SequentialVerdict& verdict) {
  PairResult pair;
  pair.level = pair_level(c.level, c.arms.size());
  pair.min_effect = c.min_effect;
  pair.longest_stall = c.sampling.longest_stall;
  pair.own_processes = c.sampling.own_processes;
  pair.seconds = c.sampling.seconds;
  pair.ended = c.sampling.ended;
  pair.blocks = blocks_of(c.sampling.rounds, arms.a, arms.b);
  pair.verdict = verdict.verdict();
  pair.ratio = verdict.ratio();
  pair.interval = verdict.interval();
  pair.typical = verdict.typical_interval();
  pair.carry_over = carry_over(middle_changes(c.sampling.rounds, arms), c.arms.size(), pair.level, c.seed);
  return pair;
}

/// Returns false if the pairs contradict each other; nothing is then concluded.
bool agree_on_intervals(Comparison& c) {
  std::vector<std::optional<Interval>> intervals;
  for (const PairResult& pair : c.pairs) intervals.push_back(pair.interval);
  const bool consistent = make_consistent(intervals, c.arms.size());
  for (size_t i = 0; i < c.pairs.size(); ++i) {
    PairResult& pair = c.pairs[i];
    if (!consistent) pair.verdict = Verdict::inconclusive;
    if (intervals[i] == pair.interval) continue;
    pair.interval = intervals[i];
    pair.ratio = std::clamp(pair.ratio, pair.interval->low, pair.interval->high);
    pair.verdict = judge(*pair.interval, c.min_effect);
  }
  return consistent;
}

/// The verdict on arm `one` relative to `other`.
Verdict verdict_of(const Comparison& c, size_t one, size_t other) {
  if (other < one) return c.pair(other, one).verdict;
  const Verdict reversed = c.pair(one, other).verdict;
  if (reversed == Verdict::pays) return Verdict::costs;
  return reversed == Verdict::costs ? Verdict::pays : reversed;
}

/// The least ratio shown of the throughput of arm `one` to that of `other`.
double least_ratio(const Comparison& c, size_t one, size_t other) {
  return other < one ? c.pair(other, one).interval->low : 1 / c.pair(one, other).interval->high;
}

Fastest fastest_of(const Comparison& c) {
  std::vector<size_t> order(c.arms.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const bool tokens = std::all_of(c.arms.begin(), c.arms.end(), [](const auto& arm) { return arm.tokens_per_s; });
  const auto rate = [&](size_t arm) { return tokens ? *c.arms[arm].tokens_per_s : c.arms[arm].samples_per_s; };
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) { return rate(i) > rate(j); });
  Fastest fastest{.arms = {order.front()}, .alike = true, .ahead = {}};
  for (const size_t arm : order) {
    if (arm == order.front()) continue;
    if (verdict_of(c, order.front(), arm) == Verdict::pays) {
      const double ratio = least_ratio(c, order.front(), arm);
      fastest.ahead = std::min(fastest.ahead.value_or(ratio), ratio);
      continue;
    }
    for (const size_t other : fastest.arms)
      fastest.alike = fastest.alike && verdict_of(c, other, arm) == Verdict::no_effect;
    fastest.arms.push_back(arm);
  }
  return fastest;
}

std::vector<std::string> warnings_of(const Comparison& c, bool consistent) {
  std::vector<std::string> all = conditions_of(c.sampling.rounds);
  add_noise_warning(c.noise, c.min_effect, all);
  if (!consistent)
    all.push_back(
        "the intervals of the pairs contradict each other, so at least one is wrong and nothing is concluded");
  const std::vector<PairOfArms> pairs = pairs_of(c.arms.size());
  bool all_decided = true;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const std::string names =
        c.is_a_and_b() ? "" : fmt::format("{} (B) against {} (A): ", c.arms[pairs[i].b].name, c.arms[pairs[i].a].name);
    for (const auto& warning : warnings_about_arms(c.pairs[i])) all.push_back(names + warning);
    all_decided = all_decided && c.pairs[i].verdict != Verdict::inconclusive;
  }
  if (all_decided) add_few_turns_warning(c.pairs.front(), all);
  return all;
}

}  // namespace

Comparison empty_comparison(const CompareOptions& options) {
  Comparison empty;
  empty.level = options.level;
  empty.min_effect = options.min_effect;
  empty.seed = options.seed;
  return empty;
}

ArmResult result_of(const Sampling& sampling, size_t arm) {
  ArmResult result;
  result.name = sampling.names[arm];
  result.facts = sampling.facts[arm];
  double seconds = 0, waited = 0;
  int64_t samples = 0, tokens = 0;
  std::vector<double> step_ms;
  for (const Round& round : sampling.rounds)
    for (size_t i = 0; i < round.turns.size(); ++i) {
      if (round.arm_of(i) != arm) continue;
      const Turn& turn = round.turns[i];
      seconds += turn.seconds;
      waited += turn.data_wait_s;
      result.phases.add(turn.phases);
      samples += turn.samples;
      tokens += turn.tokens;
      step_ms.insert(step_ms.end(), turn.step_ms.begin(), turn.step_ms.end());
    }
  if (seconds > 0) {
    result.samples_per_s = static_cast<double>(samples) / seconds;
    if (tokens > 0) result.tokens_per_s = static_cast<double>(tokens) / seconds;
    result.data_wait_pct = 100 * waited / seconds;
  }
  if (!step_ms.empty()) result.step_ms_p50 = percentile(step_ms, 0.5);
  return result;
}

std::optional<double> price_per_million_samples(const ArmResult& arm) {
  if (!arm.facts.price_per_hour || arm.samples_per_s <= 0) return std::nullopt;
  return price_of_a_million_samples(*arm.facts.price_per_hour, arm.samples_per_s);
}

const PairResult& Comparison::pair(size_t a, size_t b) const {
  TRAINOPT_CHECK(a < b && b < arms.size());
  return pairs[a * arms.size() - a * (a + 1) / 2 + (b - a - 1)];
}

void judge(Comparison& c) {
  PairVerdicts verdicts(c.sampling.names.size(),
                        verdict_options(options_of(c), c.sampling.longest_stall, c.sampling.names.size()));
  const auto& rounds = c.sampling.rounds;
  for (size_t begin = 0, end = 0; begin < rounds.size(); begin = end) {
    end = end_of_measurement(rounds, begin, c.sampling.own_processes);
    const int looks = verdicts.looks();
    verdicts.add(std::span(rounds).subspan(begin, end - begin));
    if (verdicts.looks() > looks) verdicts.look();
  }
  if (spends_the_rest(c.sampling.ended)) verdicts.finish();
  verdicts.look();
  judge(c, verdicts);
}

void judge(Comparison& c, const PairVerdicts& verdicts) {
  c.arms.clear();
  c.pairs.clear();
  c.numerics.resize(c.sampling.names.size());
  for (size_t arm = 0; arm < c.sampling.names.size(); ++arm) {
    c.arms.push_back(result_of(c.sampling, arm));
    if (!c.recipes.empty()) c.arms.back().recipe = c.recipes[arm];
  }
  const std::vector<PairOfArms>& pairs = verdicts.pairs();
  for (size_t i = 0; i < pairs.size(); ++i) c.pairs.push_back(result_of_pair(c, pairs[i], verdicts.of(i)));
  const bool consistent = agree_on_intervals(c);
  c.fastest = fastest_of(c);
  c.warnings = warnings_of(c, consistent);
  c.to_decide = what_decides(c.pairs, c.sampling.rounds, measurement_name(c));
  if (c.pairs.size() == 1) return;
  for (PairResult& pair : c.pairs) pair.blocks = {};
}

bool spends_the_rest(const std::string& ended) { return ended == "budget" || ended == "repeats"; }

std::optional<CarryOver> carry_over(std::span<const double> differences, size_t arms, double level, uint64_t seed) {
  const auto of_mean = paired_interval(differences, level, seed);
  if (!of_mean) return std::nullopt;
  double mean = 0;
  for (const double difference : differences) mean += difference / static_cast<double>(differences.size());
  const auto n = static_cast<double>(arms);
  const double factor = -2 * (1 - (n + 1) / (2 * n * n));
  return CarryOver{.ratio = std::exp(factor * mean),
                   .interval = Interval{std::exp(factor * of_mean->high), std::exp(factor * of_mean->low)}};
}

namespace {

constexpr double kRounding = 1e-9;

}  // namespace

bool make_consistent(std::vector<std::optional<Interval>>& ratios, size_t arms) {
  const std::vector<PairOfArms> pairs = pairs_of(arms);
  TRAINOPT_CHECK(ratios.size() == pairs.size());
  // bound[i][j]: the most by which log throughput j exceeds i. Shortest paths (Floyd and Warshall) give the tightest
  // bounds; a cycle with a negative sum is a contradiction.
  std::vector<std::vector<double>> bound(arms, std::vector<double>(arms, INFINITY));
  for (size_t i = 0; i < arms; ++i) bound[i][i] = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (!ratios[i]) continue;
    bound[pairs[i].a][pairs[i].b] = std::log(ratios[i]->high);
    bound[pairs[i].b][pairs[i].a] = -std::log(ratios[i]->low);
  }
  for (size_t via = 0; via < arms; ++via)
    for (size_t i = 0; i < arms; ++i)
      for (size_t j = 0; j < arms; ++j) bound[i][j] = std::min(bound[i][j], bound[i][via] + bound[via][j]);
  for (size_t i = 0; i < arms; ++i)
    if (bound[i][i] < -kRounding) return false;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const double low = -bound[pairs[i].b][pairs[i].a], high = bound[pairs[i].a][pairs[i].b];
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    if (!ratios[i]) ratios[i] = Interval{0, INFINITY};
    if (low > std::log(ratios[i]->low) + kRounding) ratios[i]->low = std::exp(low);
    if (high < std::log(ratios[i]->high) - kRounding) ratios[i]->high = std::exp(high);
  }
  return true;
}

}  // namespace trainopt
