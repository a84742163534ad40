// What a loader's threads did, and where their time went.
#pragma once

#include "data/image/stage_timer.h"

#include <cstdint>
#include <mutex>

namespace trainopt {

/// Sums over all workers (without workers: of the thread that calls next()).
struct LoaderWork {
  int64_t samples = 0;    ///< loaded, delivered or not
  int64_t worker_ns = 0;  ///< the time that passed × the number of threads that load
  int64_t busy_ns = 0;    ///< loading samples
  StageTimes stages;      ///< parts of busy_ns

  LoaderWork& operator+=(const LoaderWork& other);
  LoaderWork operator-(const LoaderWork& earlier) const;
};

/// The work of one thread, which another may read meanwhile.
class alignas(64) WorkCounter {
 public:
  /// Adds a sample.
  void add(int64_t busy_ns, const StageTimes& stages);
  LoaderWork so_far() const;

 private:
  mutable std::mutex mutex_;  // locked once per sample, and nearly always free
  LoaderWork work_;
};

}  // namespace trainopt
