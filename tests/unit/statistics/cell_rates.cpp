// Error rates of the cells of an ablation, judged together. Sizes and tables as in rates.cpp.
#include "simulate.h"
#include "statistics/cells.h"
#include "statistics/welch.h"
#include "support/catch.h"

#include <cmath>
#include <numeric>

#include <fmt/format.h>

using namespace trainopt;
using namespace trainopt::test;

namespace {

constexpr double kBlockSd = 0.03;  ///< standard deviation of a block's log ratio
constexpr int64_t kBlocksAPair = 3;
constexpr double kLevel = 0.95;

struct Ablation {
  int64_t switches = 4;
  double process_sd = 0;
  double burst = 0;       ///< log of the factor by which a burst slows one arm of a pair; hits one pair in 40
  bool effects = false;   ///< half of the switches have effects of 2 … 20 %
  double noisy_cell = 1;  ///< factor on the standard deviation of the first cell's blocks
};

/// Each switch alone and in the stack, all together, and three ceilings.
size_t cells_of(const Ablation& ablation) { return static_cast<size_t>(2 * ablation.switches + 4); }

double true_log_ratio(const Ablation& ablation, size_t cell) {
  const size_t of_switches = 2 * static_cast<size_t>(ablation.switches);
  if (!ablation.effects || cell >= of_switches || cell % 4 >= 2) return 0;
  const int64_t last = ablation.switches / 2 - 1;
  const size_t index = cell / 4;
  return std::log1p(0.02 + 0.18 * static_cast<double>(index) / static_cast<double>(last));
}

/// The log ratios of the blocks of one pair of processes.
std::vector<double> one_pair(const Ablation& ablation, size_t cell, int64_t blocks, PhiloxStream& random) {
  double of_pair = true_log_ratio(ablation, cell) + std::sqrt(2.0) * ablation.process_sd * random.next_normal();
  const double hit = random.next_unit();
  if (ablation.burst > 0 && hit < 1.0 / 40) of_pair += hit < 1.0 / 80 ? ablation.burst : -ablation.burst;
  std::vector<double> logs;
  const double sd = kBlockSd * (cell == 0 ? ablation.noisy_cell : 1);
  for (int64_t block = 0; block < blocks; ++block) logs.push_back(of_pair + sd * random.next_normal());
  return logs;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::vector<CellPairs> simulate_cells(const Ablation& ablation, int64_t pairs, uint64_t seed) {
  PhiloxStream random(mix_key(seed, "ablation"));
  std::vector<CellPairs> cells(cells_of(ablation));
  for (size_t cell = 0; cell < cells.size(); ++cell)
    for (int64_t pair = 0; pair < pairs; ++pair)
      cells[cell].push_back(mean(one_pair(ablation, cell, kBlocksAPair, random)));
  return cells;
}

bool wrong(Verdict verdict, double truth) {
  return (verdict == Verdict::pays && truth <= 0) || (verdict == Verdict::costs && truth >= 0) ||
         (verdict == Verdict::no_effect && std::abs(truth) > std::log1p(0.01));
}

struct CellRates {
  int64_t trials = 0, any_wrong = 0, any_missed = 0;
  double half_width = 0;  ///< mean half-width of the intervals of log ratios
  double found = 0;       ///< share of the true effects that are found

  double percent(int64_t count) const { return 100 * static_cast<double>(count) / static_cast<double>(trials); }
};

template <class Simulate>
CellRates measure_cells(const Ablation& ablation, int64_t trials, Simulate&& simulated) {
  CellRates rates{.trials = trials};
  int64_t effects = 0, found = 0, intervals = 0;
  for (int64_t trial = 0; trial < trials; ++trial) {
    const CellsResult result = judge_cells(simulated(static_cast<uint64_t>(trial)), kLevel, 0.01);
    bool any_wrong = false, any_missed = false;
    for (size_t i = 0; i < result.cells.size(); ++i) {
      const CellResult& cell = result.cells[i];
      const double truth = true_log_ratio(ablation, i);
      any_wrong |= wrong(cell.verdict, truth);
      any_missed |= cell.interval && !cell.interval->contains(std::exp(truth));
      effects += truth > 0;
      found += truth > 0 && cell.verdict == Verdict::pays;
      intervals += cell.interval.has_value();
      if (cell.interval) rates.half_width += std::log(cell.interval->high / cell.interval->low) / 2;
    }
    rates.any_wrong += any_wrong;
    rates.any_missed += any_missed;
  }
  rates.half_width /= static_cast<double>(std::max<int64_t>(intervals, 1));
  rates.found = effects > 0 ? static_cast<double>(found) / static_cast<double>(effects) : 0;
  return rates;
}

std::string row(const std::string& name, const Ablation& ablation, const CellRates& rates) {
  const std::string text =
      fmt::format("| {} switches, {} cells: {} | {:.1f} % | {:.1f} % | ±{:.1f} % | {} |", ablation.switches,
                  cells_of(ablation), name, rates.percent(rates.any_wrong), 100 - rates.percent(rates.any_missed),
                  100 * rates.half_width, ablation.effects ? fmt::format("{:.0f} %", 100 * rates.found) : "");
  if (full_rates()) fmt::print("{}\n", text);
  return text;
}

}  // namespace

TEST_CASE("cells of an ablation keep the family-wise error rate and simultaneous coverage", "[rates]") {
  if (full_rates())
    fmt::print(
        "\n| two pairs a cell, three blocks of 3 % a pair | any cell wrong | all intervals hold | half-width "
        "| effects found |\n|---|--:|--:|--:|--:|\n");
  const int64_t count = trials(1000);
  struct Row {
    std::string name;
    Ablation ablation;
  };
  for (const int64_t switches : {4, 8})
    for (const Row& tried :
         {Row{"no effects", {.switches = switches}},
          Row{"no effects, processes differ by 1 %", {.switches = switches, .process_sd = 0.01}},
          Row{"no effects, a burst of +30 % in one pair of 40", {.switches = switches, .burst = std::log(1.3)}},
          Row{"no effects, one cell's blocks scatter three times as much", {.switches = switches, .noisy_cell = 3}},
          Row{"half with effects of 2 to 20 %", {.switches = switches, .effects = true}},
          Row{"half with effects of 2 to 20 %, processes differ by 1 %",
              {.switches = switches, .process_sd = 0.01, .effects = true}}}) {
      const auto& [name, ablation] = tried;
      const CellRates rates =
          measure_cells(ablation, count, [&](uint64_t seed) { return simulate_cells(tried.ablation, 2, seed); });
      INFO(row(name, ablation, rates));
      // Limit of the method: two pairs cannot show that a cell is noisier than the others.
      const double max_rate = ablation.noisy_cell > 1 ? 0.12 : 0.05;
      CHECK_FALSE(exceeds(rates.any_wrong, count, max_rate));
      CHECK_FALSE(exceeds(rates.any_missed, count, max_rate));
    }
}

TEST_CASE("error rates rise without process pairs, multiplicity correction or pooling", "[rates]") {
  const int64_t count = trials(500);
  const Ablation eight{.switches = 8, .process_sd = 0.01};
  if (full_rates()) fmt::print("\n| cells, with a safeguard removed | any cell wrong |\n|---|--:|\n");
  const auto show = [&](const std::string& name, int64_t wrong) {
    const std::string text =
        fmt::format("| {} | {:.1f} % |", name, 100.0 * static_cast<double>(wrong) / static_cast<double>(count));
    if (full_rates()) fmt::print("{}\n", text);
    return text;
  };
  {
    // Twenty blocks of one pair of processes, each treated as a pair.
    const CellRates rates = measure_cells(eight, count, [&](uint64_t seed) {
      PhiloxStream random(mix_key(seed, "ablation"));
      std::vector<CellPairs> cells(cells_of(eight));
      for (size_t cell = 0; cell < cells.size(); ++cell) cells[cell] = one_pair(eight, cell, 20, random);
      return cells;
    });
    INFO(show("20 cells, one pair of processes each, its 20 blocks taken for pairs", rates.any_wrong));
    CHECK(exceeds(rates.any_wrong, count, 0.5));
  }
  {
    int64_t any = 0;
    for (int64_t trial = 0; trial < count; ++trial) {
      const CellsResult result = judge_cells(simulate_cells(eight, 2, static_cast<uint64_t>(trial)), kLevel, 0.01);
      const double reach = student_quantile((1 - kLevel) / 2, static_cast<double>(result.cells.size()));
      bool wrong = false;
      for (const CellResult& cell : result.cells)
        wrong |= std::abs(std::log(cell.ratio)) > reach * *result.pair_sd / std::sqrt(2.0);
      any += wrong;
    }
    INFO(show("20 cells, each at 95 % for itself", any));
    CHECK(exceeds(any, count, 0.4));
  }
  {
    // Intervals from a cell's own two pairs: Student's t with one degree of freedom.
    double alone = 0, cells = 0;
    const CellRates pooled = measure_cells(eight, count, [&](uint64_t seed) {
      const std::vector<CellPairs> all = simulate_cells(eight, 2, seed);
      const double reach = student_quantile((1 - kLevel) / 2 / static_cast<double>(all.size()), 1);
      for (const CellPairs& pairs : all) alone += reach * std::abs(pairs[0] - pairs[1]) / 2, ++cells;
      return all;
    });
    alone /= cells;
    if (full_rates())
      fmt::print(
          "\nMean half-width of the intervals: {:.1f} % with the pooled variance, {:.0f} % with each cell's own two "
          "pairs.\n",
          100 * pooled.half_width, 100 * alone);
    CHECK(alone > 50 * pooled.half_width);
  }
}
