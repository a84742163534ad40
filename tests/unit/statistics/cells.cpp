#include "statistics/cells.h"

#include "simulate.h"
#include "statistics/welch.h"
#include "support/catch.h"

#include <cmath>

using namespace trainopt;
using namespace trainopt::test;

namespace {

/// Two pairs at `mean` ± `scatter`; `scatter` is then the standard error of the mean.
CellPairs two(double mean, double scatter) { return {mean - scatter, mean + scatter}; }

/// Cells of equal standard error with the given p-values.
std::vector<CellPairs> with_p_values(const std::vector<double>& values, double scatter = 0.01) {
  std::vector<CellPairs> cells;
  for (const double p : values)
    cells.push_back(two(scatter * student_quantile(p / 2, static_cast<double>(values.size())), scatter));
  return cells;
}

}  // namespace

TEST_CASE("two cells match a calculation by hand") {
  // Sums of squares about the means 0.0008 and 0.0002, two degrees of freedom: the pooled variance is 0.0005.
  const std::vector<CellPairs> cells{{0.10, 0.14}, {0, 0.02}};
  const CellsResult result = judge_cells(cells, 0.9, 0.01);
  REQUIRE(result.cells.size() == 2);
  REQUIRE((result.pair_sd && result.cells[0].interval && result.cells[1].interval));
  CHECK(*result.pair_sd == Approx(std::sqrt(0.0005)));
  CHECK(result.cells[0].ratio == Approx(std::exp(0.12)));
  CHECK(result.cells[1].ratio == Approx(std::exp(0.01)));
  // Student's t with 2 degrees of freedom, a quarter of 10 % beyond each end: 4.30265. The first cell varies more than
  // the pool and keeps its own standard error, sqrt(0.0008 / 2) = 0.02. The second takes the pool's, sqrt(0.0005 / 2).
  CHECK(std::log(result.cells[0].interval->low) == Approx(0.12 - 4.302653 * 0.02));
  CHECK(std::log(result.cells[0].interval->high) == Approx(0.12 + 4.302653 * 0.02));
  CHECK(std::log(result.cells[1].interval->low) == Approx(0.01 - 4.302653 * 0.0158113883));
  CHECK(std::log(result.cells[1].interval->high) == Approx(0.01 + 4.302653 * 0.0158113883));
  CHECK(result.cells[0].verdict == Verdict::pays);
  CHECK(result.cells[1].verdict == Verdict::inconclusive);
  // 10 % are beyond 1.88562: (4.30265 + 1.88562)² · 0.0005 / log(1.01)² = 193.4
  CHECK(result.pairs_needed == 194);
}

TEST_CASE("Holm's procedure rejects p-values in ascending order until one is too large") {
  const auto verdicts = [](const std::vector<double>& p_values) {
    std::string text;
    for (const CellResult& cell : judge_cells(with_p_values(p_values), 0.95, 0.001).cells)
      text += cell.verdict == Verdict::pays ? 'p' : cell.verdict == Verdict::inconclusive ? '.' : '?';
    return text;
  };
  CHECK(verdicts({0.016, 0.024, 0.049}) == "ppp");  // Bonferroni rejects the first only
  CHECK(verdicts({0.049, 0.016, 0.024}) == "ppp");  // whatever their order
  CHECK(verdicts({0.016, 0.026, 0.049}) == "p..");  // stops at the second
  CHECK(verdicts({0.018, 0.024, 0.024}) == "...");  // stops at the first
}

TEST_CASE("an interval agrees with its cell's verdict") {
  const CellsResult result = judge_cells(with_p_values({0.016, 0.024, 0.049}), 0.95, 0.001);
  REQUIRE(result.cells[0].interval);
  CHECK(result.cells[0].interval->low > 1);   // by Bonferroni too
  CHECK(result.cells[1].interval->low == 1);  // by Holm only
  CHECK(result.cells[2].interval->low == 1);

  std::vector<CellPairs> negative = with_p_values({0.016, 0.024, 0.049});
  for (CellPairs& pairs : negative)
    for (double& value : pairs) value = -value;
  const CellsResult mirrored = judge_cells(negative, 0.95, 0.001);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(mirrored.cells[i].verdict == Verdict::costs);
    CHECK(mirrored.cells[i].interval->high == Approx(1 / result.cells[i].interval->low));
  }
  // Real but too small to matter.
  CHECK(judge_cells(std::vector<CellPairs>{two(0.002, 1e-5), two(0.1, 1e-5)}, 0.95, 0.01).cells[0].verdict ==
        Verdict::no_effect);
}

TEST_CASE("one pair has a ratio but no interval, and without a second pair in any cell nothing is judged") {
  const CellsResult some = judge_cells(std::vector<CellPairs>{{0.2}, {}, two(0.1, 0.001), two(0, 0.001)}, 0.95, 0.01);
  CHECK(some.cells[0].ratio == Approx(std::exp(0.2)));
  CHECK_FALSE(some.cells[0].interval);
  CHECK(some.cells[0].verdict == Verdict::inconclusive);
  CHECK(some.cells[1].ratio == 1);
  CHECK_FALSE(some.cells[1].interval);
  CHECK(some.cells[2].verdict == Verdict::pays);
  // Cells without an interval do not count in Bonferroni's and Holm's corrections.
  const CellsResult alone = judge_cells(std::vector<CellPairs>{two(0.1, 0.001), two(0, 0.001)}, 0.95, 0.01);
  CHECK(some.cells[2].interval == alone.cells[0].interval);

  for (const std::vector<CellPairs>& none :
       {std::vector<CellPairs>{}, std::vector<CellPairs>{{}, {}}, std::vector<CellPairs>{{0.1}, {0.2}}}) {
    const CellsResult result = judge_cells(none, 0.95, 0.01);
    CHECK_FALSE(result.pair_sd);
    CHECK_FALSE(result.pairs_needed);
    for (const CellResult& cell : result.cells) CHECK_FALSE(cell.interval);
  }
}

TEST_CASE("a cell that varies more than the others keeps its own variance") {
  const std::vector<CellPairs> cells{two(0.05, 0.06), two(0.05, 0.001), two(0, 0.001), two(0, 0.001)};
  const CellsResult result = judge_cells(cells, 0.95, 0.01);
  CHECK(result.cells[0].verdict == Verdict::inconclusive);
  const auto width = [&](size_t cell) {
    return std::log(result.cells[cell].interval->high / result.cells[cell].interval->low);
  };
  CHECK(width(0) > 1.9 * width(1));
  CHECK(width(1) == Approx(width(2)));
  // Intervals get narrower with more pairs, wider with a level nearer to 1 and with more cells.
  CHECK(*judge_cells(cells, 0.99, 0.01).pairs_needed > *result.pairs_needed);
}

TEST_CASE("cells without any variance are judged") {
  const CellsResult result = judge_cells(std::vector<CellPairs>{{0.1, 0.1}, {0, 0}}, 0.95, 0.01);
  CHECK(result.cells[0].verdict == Verdict::pays);
  CHECK(result.cells[1].verdict == Verdict::no_effect);
  CHECK(result.pair_sd == 0.0);
  CHECK(result.pairs_needed == 2);
}
