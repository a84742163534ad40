// What goes wrong with memory over many steps: leaks and spikes, with the place that they come from.
#pragma once

#include "train/observe/memory_recorder.h"

namespace trainopt {

/// Memory that is allocated in every step and never released.
struct MemoryLeak {
  std::string where;
  double bytes_per_step = 0;
  int64_t steps = 0;  ///< steps that left some behind
  std::string text() const;
};
/// Looks at the steps between a run's first two and last two, which may hold memory for a good reason. A place leaks
/// if blocks from four of them, and from four fifths of them, are still live. Largest first.
std::vector<MemoryLeak> memory_leaks(const MemoryRecorder::Contents& contents);

/// A step that needed much more memory than those before it.
struct MemorySpike {
  int64_t step = 0, peak_bytes = 0;
  int64_t usual_bytes = 0;  ///< median peak of the steps before
  std::string where;        ///< the place that grew most, compared with such a step
  int64_t grown_bytes = 0;  ///< by how much it grew
  std::string text() const;
};

class MemorySpikes {
 public:
  /// Call at the end of every step with MemoryRecorder::peak_by_label(). A spike's peak is a quarter and a mebibyte
  /// above the median of up to 32 steps before it.
  std::optional<MemorySpike> add(int64_t step, std::vector<std::pair<MemoryLabel, int64_t>> peak);

 private:
  struct Peak {
    int64_t bytes = 0;
    std::vector<std::pair<MemoryLabel, int64_t>> by_label;
  };
  const Peak& usual() const;

  std::deque<Peak> past_;
  int64_t steps_ = 0;
};

}  // namespace trainopt
