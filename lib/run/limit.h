// What limits a run: the part of its time from which most could be gained.
#pragma once

#include "base/json.h"
#include "data/loader_bench.h"
#include "metrics/step_statistics.h"
#include "metrics/stragglers.h"
#include "storage/data_files.h"

#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// What one process measured of its time.
struct RunTimes {
  int64_t steps = 0;                          ///< steps that this process took
  StepTimes step;                             ///< means over the measured steps
  double evaluation_s = 0, checkpoint_s = 0;  ///< time between the steps, in all
  double records_s = 0;                       ///< time for writing records, part of the steps, in all
  std::optional<LoaderShares> loader;         ///< null without a loader
  int64_t loader_threads = 0;                 ///< 0: the training thread loads
  bool copies_ahead = true;                   ///< batches are copied to the device while the step runs
  std::optional<int64_t> operations;          ///< libtorch's operations in a step; null: not counted
  std::optional<double> operations_ms;        ///< the host's time to start a step's operations; null: not known
  std::optional<double> memory_bound_pct;     ///< memory-bound share of the least time by roofline; null: not known
  std::optional<StorageUse> storage = {};     ///< what was read of object storage; null: all files are local
};

struct TimePart {
  std::string name;      ///< "loader", "evaluation"
  double share_pct = 0;  ///< share of the training's time
};

struct Limit {
  /// "loader", "storage" (waiting for data, mostly for its bytes to arrive), "copy", "launches", "exchange",
  /// "straggler", "evaluation", "checkpoints", "records", "update", "memory bandwidth", "compute", or "nothing".
  std::string name;
  std::string text;            ///< one line: what limits the run, its share of the time, and the evidence
  std::string what, evidence;  ///< "waiting for data"; empty if there is none
  std::optional<double> share_pct, noise_pct;
  std::vector<TimePart> parts;  ///< parts of the time, the largest first
  double update_pct = 0;        ///< share of the time for the update with the starts of its operations
};

/// Waiting, copying, evaluating and the like can be avoided altogether, computing cannot. So the limit is the largest
/// part that can be avoided, unless it is smaller than the noise of the measured speed, or than what a comparison calls
/// *no effect*: then it is what most of the rest computes. On a CPU, where starting operations is a part of computing,
/// it is the limit only if it takes more than half of it. "nothing" if the run is too short to know its noise.
Limit find_limit(const RunTimes& times);

Json to_json(const Limit& limit);

}  // namespace trainopt
