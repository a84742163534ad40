// Compares two finished runs by their records. They were not paired: whatever changed on the machine between them
// counts as a difference.
#pragma once

#include "base/json.h"
#include "statistics/block_bootstrap.h"

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

struct FinishedRun {
  std::string name;          ///< its folder as given
  std::vector<Piece> steps;  ///< single steps or neighbours merged, without the warm-up that its summary excluded
  int64_t measured_steps = 0;
  std::optional<double> last_loss;
};
/// Throws UserError(data) if the folder has no summary.json, or neither step_times.csv nor metrics.jsonl has
/// steps.
FinishedRun read_finished_run(const std::filesystem::path& run_dir);

struct RunsComparison {
  std::array<FinishedRun, 2> runs;   ///< A and B
  double ratio = 1;                  ///< B's throughput divided by A's. No verdict, because it includes other changes
  std::optional<Interval> interval;  ///< the ratio's, from the variation of the steps alone; null: too few steps
  double level = 0.95;
};
RunsComparison compare_runs(FinishedRun a, FinishedRun b, double level);

std::string runs_text(const RunsComparison& comparison);
Json to_json(const RunsComparison& comparison);

}  // namespace trainopt
