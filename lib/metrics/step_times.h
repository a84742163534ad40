// The mean parts of a run's measured steps.
#pragma once

#include "metrics/stragglers.h"

#include <optional>

namespace trainopt {

/// Shares are of the steps' time.
struct StepTimes {
  double mean_ms = 0;
  std::optional<double> forward_ms, backward_ms, update_ms;  ///< null: not timed apart
  std::optional<double> data_wait_pct, copy_pct, exposed_pct;
  std::optional<double> gpu_busy_pct;  ///< with at least one kernel running
  std::optional<double> mfu_pct;
  std::optional<double> noise_pct;  ///< half-width of the throughput's 95 % interval; null: too few steps
  std::optional<Straggler> straggler;
};

}  // namespace trainopt
