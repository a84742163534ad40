// Error rates of the verdict. Short by default; TRAINOPT_FULL_RATES=1 runs 10,000 trials per row, checks the same
// limits and prints the tables of app/guide/error-rates.md.
#include "simulate.h"
#include "statistics/sign_flips.h"
#include "support/catch.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

using namespace trainopt;
using namespace trainopt::test;

namespace {

constexpr int64_t kBlocks = 100;  ///< most blocks of four turns; a last look follows
constexpr int64_t kPairs = 60;    ///< most pairs of processes
constexpr double kEffect = 1.02;

/// Counts over the trials of a row.
struct Rates {
  int64_t trials = 0, pays = 0, costs = 0, undecided = 0;
  int64_t missed = 0, missed_given_pays = 0;  ///< the interval does not contain the truth
  double bias_given_pays = 0;                 ///< mean ratio minus the truth
  int64_t median_turns = 0;                   ///< of both arms together

  int64_t wrong() const { return pays + costs; }
  double percent(int64_t count, int64_t of) const {
    return of == 0 ? 0 : 100 * static_cast<double>(count) / static_cast<double>(of);
  }
  double percent(int64_t count) const { return percent(count, trials); }
};

double measured_ratio(std::span<const Measurement> measurements) {
  PairedTimes sum;
  for (const auto& m : measurements) sum = {sum.a + m.seconds_per_sample.a, sum.b + m.seconds_per_sample.b};
  return sum.a / sum.b;
}

template <class Simulate>
Rates measure(int64_t trials, double truth, SequentialOptions options, Simulate&& simulated) {
  Rates rates{.trials = trials};
  std::vector<int64_t> turns;
  for (int64_t trial = 0; trial < trials; ++trial) {
    options.seed = static_cast<uint64_t>(trial + 1);
    const std::vector<Measurement> measurements = simulated(options.seed);
    const SequentialVerdict sequential = decide(measurements, options);
    const Verdict verdict = sequential.verdict();
    const bool missed = sequential.rejects(truth), pays = verdict == Verdict::pays;
    rates.pays += pays;
    rates.costs += verdict == Verdict::costs;
    rates.undecided += verdict == Verdict::inconclusive;
    rates.missed += missed;
    rates.missed_given_pays += pays && missed;
    if (pays)
      rates.bias_given_pays +=
          measured_ratio(std::span(measurements).first(static_cast<size_t>(sequential.measurements()))) - truth;
    turns.push_back(2 * sequential.turns());
  }
  if (rates.pays > 0) rates.bias_given_pays /= static_cast<double>(rates.pays);
  std::nth_element(turns.begin(), turns.begin() + trials / 2, turns.end());
  rates.median_turns = turns[static_cast<size_t>(trials / 2)];
  return rates;
}

/// Returns the rates for a B that is faster.
template <class Simulate>
Rates check_row(const std::string& name, bool stalls, int64_t trials, Simulate&& simulated) {
  const Rates equal = measure(trials, 1, {}, [&](uint64_t seed) { return simulated(1, seed); });
  const Rates effect = measure(trials, kEffect, {}, [&](uint64_t seed) { return simulated(kEffect, seed); });
  const std::string row =
      fmt::format("| {} | {:.1f} % | {:.1f} % | {} | {:.1f} % | {:.1f} % | {:+.2f} | {:.1f} % | {} |", name,
                  equal.percent(equal.wrong()), equal.percent(equal.undecided), equal.median_turns,
                  100 - effect.percent(effect.missed), 100 - effect.percent(effect.missed_given_pays, effect.pays),
                  100 * effect.bias_given_pays, effect.percent(effect.undecided), effect.median_turns);
  if (full_rates()) fmt::print("{}\n", row);
  std::fflush(stdout);
  INFO(row);
  const double limit = stalls ? 0.10 : 0.05;
  CHECK_FALSE(exceeds(equal.wrong(), trials, limit));
  CHECK_FALSE(exceeds(effect.missed, trials, limit));
  if (!stalls) CHECK_FALSE(exceeds(effect.missed_given_pays, effect.pays, 0.10));
  // A true effect of twice min_effect hardly ever gets the verdict costs.
  CHECK_FALSE(exceeds(effect.costs, trials, limit));
  return effect;
}

void print_head(const std::string& first) {
  if (!full_rates()) return;
  fmt::print(
      "\n| {} | wrong | undecided | turns | coverage at +2 % | given *pays* | bias given *pays*, points | undecided "
      "| turns |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
      first);
}

}  // namespace

TEST_CASE("verdicts on equal arms and on an effect of 2 % keep their error rates for any noise", "[rates]") {
  print_head("noise of a turn");
  for (const Noise& noise : noises()) {
    const Rates effect = check_row(noise.name, noise.stalls, trials(300),
                                   [&](double ratio, uint64_t seed) { return simulate(noise, ratio, kBlocks, seed); });
    if (noise.name.starts_with("white")) CHECK(effect.median_turns == 240);
  }
}

TEST_CASE("verdicts from pairs of fresh processes keep their error rates although processes differ", "[rates]") {
  print_head("processes that differ by 1 % (sd), three blocks a pair");
  for (const double sd : {0.01, 0.03, 0.06})
    check_row(fmt::format("blocks of {:g} %", 100 * sd), false, trials(300),
              [&](double ratio, uint64_t seed) { return simulate_pairs({.block_sd = sd}, ratio, kPairs, seed); });
  check_row("blocks of 1 %, the process made second is 2 % slower", false, trials(300),
            [](double ratio, uint64_t seed) {
              return simulate_pairs({.block_sd = 0.01, .second_slower = 0.02}, ratio, kPairs, seed);
            });
}

TEST_CASE("error rates rise without the coin toss, the pairs, the looks or the allowances", "[rates]") {
  const auto show = [](const std::string& name, const Rates& rates) {
    if (full_rates()) fmt::print("| {} | {:.1f} % |\n", name, rates.percent(rates.wrong()));
    std::fflush(stdout);
    return fmt::format("{}: wrong {:.1f} %", name, rates.percent(rates.wrong()));
  };
  if (full_rates()) fmt::print("\n| equal arms, with a safeguard removed | wrong |\n|---|--:|\n");
  const int64_t count = trials(150, 2000);
  {
    const Rates rates =
        measure(count, 1, {}, [](uint64_t seed) { return simulate(every_fourth(), 1, kBlocks, seed, always_abba); });
    INFO(show("always A B B A, " + every_fourth().name, rates));
    CHECK(exceeds(rates.wrong(), count, 0.9));
  }
  {
    const Rates rates = measure(count, 1, {}, [](uint64_t seed) {
      return simulate_pairs({.block_sd = 0.01, .second_slower = 0.02}, 1, kPairs, seed, always_abba);
    });
    INFO(show("A's process always made first, the second is 2 % slower", rates));
    CHECK(exceeds(rates.wrong(), count, 0.8));
  }
  for (const auto& [sd, lowest] : {std::pair{0.01, 0.4}, {0.03, 0.3}, {0.06, 0.15}}) {
    const Rates rates = measure(
        count, 1, {}, [sd = sd](uint64_t seed) { return simulate_one_pair({.block_sd = sd}, 1, kBlocks, seed); });
    INFO(show(fmt::format("one pair of processes for life, blocks of {:g} %", 100 * sd), rates));
    CHECK(exceeds(rates.wrong(), count, lowest));
  }
  for (const double factor : {1.5, 2.0, 4.0, 10.0}) {
    // Longest turns of zero switch the slowest-turn allowance off.
    const Rates rates = measure(count, 1, {.longest_stall = 0}, [factor](uint64_t seed) {
      std::vector<Measurement> measurements = simulate(stalls(factor, 0.01), 1, kBlocks, seed);
      for (Measurement& m : measurements) m.longest_turn = {};
      return measurements;
    });
    INFO(show(stalls(factor, 0.01).name + ", no allowance", rates));
    CHECK(exceeds(rates.wrong(), count, factor < 2 ? 0.1 : 0.3));
  }
  {
    Rates rates{.trials = count};
    for (int64_t trial = 0; trial < count; ++trial) {
      const auto seed = static_cast<uint64_t>(trial);
      std::vector<PairedTimes> pairs;
      for (const Measurement& m : simulate(white(0.03), 1, kBlocks, seed)) {
        pairs.push_back(m.seconds_per_sample);
        if (pairs.size() < 8) continue;
        SignFlipTest test(0.05, seed);
        test.look(pairs, 0.05);
        rates.pays += test.rejects_as_too_low(1);
        rates.costs += test.rejects_as_too_high(1);
        if (test.rejects_as_too_low(1) || test.rejects_as_too_high(1)) break;
      }
    }
    INFO(show("a 95 % interval after every block, " + white(0.03).name, rates));
    CHECK(exceeds(rates.wrong(), count, 0.1));
  }
}
