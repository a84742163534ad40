// Multiple comparisons: many small comparisons judged together, such as the cells of an ablation.
#pragma once

#include "statistics/spread.h"
#include "statistics/verdict.h"

#include <optional>
#include <span>
#include <vector>

namespace trainopt {

/// The log ratios of throughputs (B's to A's), one per pair of processes. Empty: not measured.
using CellPairs = std::vector<double>;

struct CellResult {
  double ratio = 1;                  ///< the geometric mean over the pairs
  double standard_error = 0;         ///< the standard error of the ratio's logarithm
  std::optional<Interval> interval;  ///< the ratio's interval; null: fewer than two pairs
  Verdict verdict = Verdict::inconclusive;
};

struct CellsResult {
  std::vector<CellResult> cells;  ///< one per cell, in the order given
  double reach = 0;               ///< half-width of each interval of the logarithm, in standard errors
  std::optional<double> pair_sd;  ///< standard deviation of one pair's log ratio, pooled over cells; null: unknown
  std::optional<int64_t> pairs_needed;  ///< pairs per cell to reach `no_effect` in nine of ten cells without an effect
};

/// Judges all cells together. Two pairs say little about how much pairs vary, so the variance is pooled over the cells;
/// a cell whose own pairs vary more keeps its own variance. All intervals hold simultaneously with probability `level`
/// (Bonferroni; Student's t). *Pays* and *costs* follow Holm's step-down procedure (S. Holm, "A simple sequentially
/// rejective multiple test procedure", Scand. J. Statist. 6, 1979): the chance that any of them is wrong is at most
/// 1 − level. The intervals of such cells end at 1 where Bonferroni's would extend beyond it (K. Strassburger and
/// F. Bretz, "Compatible simultaneous lower confidence bounds for the Holm procedure", Statist. Med. 27, 2008).
CellsResult judge_cells(std::span<const CellPairs> cells, double level, double min_effect);

}  // namespace trainopt
