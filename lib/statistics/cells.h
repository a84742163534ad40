// Many small comparisons at once, as the cells of an ablation are.
#pragma once

#include "statistics/interval.h"
#include "statistics/verdict.h"

#include <optional>
#include <span>
#include <vector>

namespace trainopt {

/// The log ratios of throughputs (B's over A's), one for each pair of processes. Empty: not measured.
using CellPairs = std::vector<double>;

struct CellResult {
  double ratio = 1;                  ///< the geometric mean over the pairs
  double standard_error = 0;         ///< of its logarithm
  std::optional<Interval> interval;  ///< of the ratio; null: fewer than two pairs, or nothing to learn the scatter from
  Verdict verdict = Verdict::inconclusive;
};

struct CellsResult {
  std::vector<CellResult> cells;        ///< one for each cell, in their order
  double reach = 0;                     ///< an interval is the logarithm ± so many standard errors
  std::optional<double> pair_sd;        ///< scatter of one pair's log ratio, pooled over the cells; null: not known
  std::optional<int64_t> pairs_needed;  ///< in each cell, to find no effect where there is none in nine cells of ten
};

/// Judges all cells together. Two pairs know little of how pairs scatter, so the scatter is pooled over the cells; a
/// cell whose own pairs scatter more keeps its own. All intervals hold at once with the probability `level`
/// (Bonferroni; Student's t). *Pays* and *costs* follow Holm's step-down rule (S. Holm, "A simple sequentially
/// rejective multiple test procedure", Scand. J. Statist. 6, 1979): the chance that any of them is wrong is at most
/// 1 − level, and their intervals then end at 1 where Bonferroni's would reach beyond it (K. Strassburger and F. Bretz,
/// "Compatible simultaneous lower confidence bounds for the Holm procedure", Statist. Med. 27, 2008).
CellsResult judge_cells(std::span<const CellPairs> cells, double level, double min_effect);

}  // namespace trainopt
