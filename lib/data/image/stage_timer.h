// Times the stages of loading a sample.
#pragma once

#include "base/clock.h"

#include <cstdint>

namespace trainopt {

/// Time spent in the stages. Decoding a JPEG at reduced size or in part counts as decoding: the decoder does both.
struct StageTimes {
  int64_t read_ns = 0;       ///< reading a file
  int64_t decode_ns = 0;     ///< from the file's bytes to pixels
  int64_t transform_ns = 0;  ///< from pixels to their place in the batch: crop, resize, flip, normalise
};

/// Adds its lifetime to `total_ns`, also if an exception ends it.
class StageTimer {
 public:
  explicit StageTimer(int64_t& total_ns) : total_ns_(total_ns) {}
  ~StageTimer() { total_ns_ += std::chrono::nanoseconds(Clock::now() - begin_).count(); }
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  int64_t& total_ns_;
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace trainopt
