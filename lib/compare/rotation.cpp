#include "compare/rotation.h"

#include "base/error.h"
#include "compare/output/remarks.h"
#include "compare/sampling/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trainopt {
namespace {

CompareOptions options_of(const Rotation& r) {
  CompareOptions options;
  options.level = r.level;
  options.min_effect = r.min_effect;
  options.seed = r.seed;
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

/// The pair's comparison with turns, which judge() removes when all is computed from them.
Comparison comparison_in(const Rotation& r, PairOfArms pair, const SequentialVerdict& verdict) {
  CompareOptions options = options_of(r);
  options.level = pair_level(r.level, r.arms.size());
  Comparison c = empty_comparison(options);
  c.own_processes = r.sampling.own_processes;
  c.longest_stall = r.sampling.longest_stall;
  c.seconds = r.sampling.seconds;
  c.ended = r.sampling.ended;
  c.blocks = blocks_of(r.sampling.rounds, pair.a, pair.b);
  conclude(c, verdict);
  c.carry_over = carry_over(middle_changes(r.sampling.rounds, pair), r.arms.size(), c.level, c.seed);
  return c;
}

/// Returns false if the pairs contradict each other; nothing is then concluded.
bool agree_on_intervals(Rotation& r) {
  std::vector<std::optional<Interval>> intervals;
  for (const Comparison& pair : r.pairs) intervals.push_back(pair.interval);
  const bool consistent = make_consistent(intervals, r.arms.size());
  for (size_t i = 0; i < r.pairs.size(); ++i) {
    Comparison& pair = r.pairs[i];
    if (!consistent) pair.verdict = Verdict::inconclusive;
    if (intervals[i] == pair.interval) continue;
    pair.interval = intervals[i];
    pair.ratio = std::clamp(pair.ratio, pair.interval->low, pair.interval->high);
    pair.verdict = judge(*pair.interval, r.min_effect);
  }
  return consistent;
}

/// The verdict on arm `one` relative to `other`.
Verdict verdict_of(const Rotation& r, size_t one, size_t other) {
  if (other < one) return r.pair(other, one).verdict;
  const Verdict reversed = r.pair(one, other).verdict;
  if (reversed == Verdict::pays) return Verdict::costs;
  return reversed == Verdict::costs ? Verdict::pays : reversed;
}

/// The least ratio shown of the throughput of arm `one` to that of `other`.
double least_ratio(const Rotation& r, size_t one, size_t other) {
  return other < one ? r.pair(other, one).interval->low : 1 / r.pair(one, other).interval->high;
}

Fastest fastest_of(const Rotation& r) {
  std::vector<size_t> order(r.arms.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const bool tokens = std::all_of(r.arms.begin(), r.arms.end(), [](const auto& arm) { return arm.tokens_per_s; });
  const auto rate = [&](size_t arm) { return tokens ? *r.arms[arm].tokens_per_s : r.arms[arm].samples_per_s; };
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) { return rate(i) > rate(j); });
  Fastest fastest{.arms = {order.front()}, .alike = true, .ahead = {}};
  for (const size_t arm : order) {
    if (arm == order.front()) continue;
    if (verdict_of(r, order.front(), arm) == Verdict::pays) {
      const double ratio = least_ratio(r, order.front(), arm);
      fastest.ahead = std::min(fastest.ahead.value_or(ratio), ratio);
      continue;
    }
    for (const size_t other : fastest.arms)
      fastest.alike = fastest.alike && verdict_of(r, other, arm) == Verdict::no_effect;
    fastest.arms.push_back(arm);
  }
  return fastest;
}

std::vector<std::string> rotation_warnings(const Rotation& r, bool consistent) {
  std::vector<std::string> all = conditions_of(r.sampling.rounds);
  add_noise_warning(r.noise, r.min_effect, all);
  if (!consistent)
    all.push_back(
        "the intervals of the pairs contradict each other, so at least one is wrong and nothing is concluded");
  const std::vector<PairOfArms> pairs = pairs_of(r.arms.size());
  std::optional<int64_t> needed;
  bool all_decided = true;
  for (size_t i = 0; i < pairs.size(); ++i) {
    for (const auto& warning : warnings_about_arms(r.pairs[i]))
      all.push_back(
          fmt::format("{} (B) against {} (A): {}", r.arms[pairs[i].b].name, r.arms[pairs[i].a].name, warning));
    all_decided = all_decided && r.pairs[i].verdict != Verdict::inconclusive;
    if (r.pairs[i].verdict == Verdict::inconclusive) needed = std::max(needed, more_measurements(r.pairs[i]));
  }
  add_few_turns_warning(r.pairs.front(), all_decided, needed, r.sampling.own_processes ? "set" : "round", all);
  return all;
}

}  // namespace

const Comparison& Rotation::pair(size_t a, size_t b) const {
  TRAINOPT_CHECK(a < b && b < arms.size());
  return pairs[a * arms.size() - a * (a + 1) / 2 + (b - a - 1)];
}

void judge(Rotation& r) {
  PairVerdicts verdicts(r.sampling.names.size(),
                        verdict_options(options_of(r), r.sampling.longest_stall, r.sampling.names.size()));
  const auto& rounds = r.sampling.rounds;
  for (size_t begin = 0, end = 0; begin < rounds.size(); begin = end) {
    end = end_of_measurement(rounds, begin, r.sampling.own_processes);
    const int looks = verdicts.looks();
    verdicts.add(std::span(rounds).subspan(begin, end - begin));
    if (verdicts.looks() > looks) verdicts.look();
  }
  if (spends_the_rest(r.sampling.ended)) verdicts.finish();
  verdicts.look();
  judge(r, verdicts);
}

void judge(Rotation& r, const PairVerdicts& verdicts) {
  r.arms.clear();
  r.pairs.clear();
  for (size_t arm = 0; arm < r.sampling.names.size(); ++arm) r.arms.push_back(result_of(r.sampling, arm));
  const std::vector<PairOfArms>& pairs = verdicts.pairs();
  for (size_t i = 0; i < pairs.size(); ++i) r.pairs.push_back(comparison_in(r, pairs[i], verdicts.of(i)));
  const bool consistent = agree_on_intervals(r);
  r.fastest = fastest_of(r);
  r.warnings = rotation_warnings(r, consistent);
  for (Comparison& pair : r.pairs) pair.blocks = {};
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
