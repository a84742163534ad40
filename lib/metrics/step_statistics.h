// Samples and seconds of a run's steps, in order and in bounded memory.
#pragma once

#include "metrics/record.h"
#include "metrics/stragglers.h"
#include "statistics/block_bootstrap.h"

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// When there are too many pieces, neighbours are merged in pairs: sums stay exact, pieces stay equally long, and slow
/// changes stay visible.
class StepSeries {
 public:
  explicit StepSeries(size_t steps_per_piece = 1) : steps_per_piece_(steps_per_piece) {}

  static constexpr size_t kMaxPieces = 1024;  ///< computing an interval from this many takes 30 ms

  void add(Piece step);
  /// Each covers steps_per_piece() steps; the last may cover fewer.
  std::vector<Piece> pieces() const;
  size_t steps_per_piece() const { return steps_per_piece_; }

 private:
  std::vector<Piece> pieces_;
  Piece open_;
  size_t open_steps_ = 0, steps_per_piece_;
};

// The mean parts of a run's measured steps.

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

// Detects a loss far above the previous ones, for a line in the log.

class LossSpikes {
 public:
  static constexpr double kFactor = 3;  ///< a spike is above this many times the median of the window
  static constexpr size_t kWindow = 64, kMinLosses = 32;

  /// If `loss` is a spike, returns the median that it exceeds and restarts the window, so that a loss that stays high
  /// is reported once.
  std::optional<double> add(double loss);

 private:
  std::deque<double> before_;
};

// Whether tensors take more memory from step to step.

class MemoryTrend {
 public:
  /// Call for every step, in order.
  void add(const StepRecord& row);

  /// A sentence, if memory_allocated_mib rose in nine of ten steps, twenty at least, by a mebibyte or more in all. The
  /// first steps, which allocate what stays, do not count.
  std::optional<std::string> warning() const;

 private:
  int64_t steps_ = 0, rises_ = 0;  ///< compared with the step before
  std::optional<double> first_mib_, last_mib_;
};

}  // namespace trainopt
