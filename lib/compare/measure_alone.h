// Measures one recipe without a partner, in several fresh processes one after the other.
#pragma once

#include "compare/process_pairs.h"

namespace trainopt {

/// The turns of one process: as many as an arm takes in a pair of processes.
struct ProcessTurns {
  std::vector<Turn> turns;
  std::optional<double> other_load_pct;  ///< by other processes meanwhile, in % of the cores; null: unknown

  /// Over the total time, long turns included.
  double seconds_per_sample() const;
};

struct MeasuredAlone {
  ArmResult arm;                        ///< facts of the first process
  std::vector<ProcessTurns> processes;  ///< two processes of the same recipe differ, so each is one measurement
  std::string ended;                    ///< why sampling ended: processes, repeats, budget, stopped, failed
  std::string failure;                  ///< the arm's message, if it failed after the first process
  ExitCode failure_code = ExitCode::done;
  double seconds = 0;  ///< of the whole measurement
};

/// Takes `processes` (or options.repeats) fresh processes, fewer if the next would not end by `until` or the observer
/// stops it; always one. Throws what the first arm throws; a later failure ends sampling and is recorded.
MeasuredAlone measure_alone(const MakeArm& make, int64_t processes, const CompareOptions& options,
                            Clock::time_point until, const Observer& observer);

/// The arm's result over all turns; name, facts and recipe are left as they are.
void summarize_turns(MeasuredAlone& measured);

}  // namespace trainopt
