// The order of samples that are best read in runs, such as the rows of a Parquet file's row groups: random, yet close
// together. A pure function of seed, epoch and position, like KeyedPermutation.
//
// The runs are put in a random order, one after the other, and the line of their samples is cut into partitions of
// equal size. Each step draws equally from every partition, which it goes through window by window: a window is a few
// whole runs whose samples are in a random order. So only the runs of one window of each partition are needed at a
// time, and a rank that has whole partitions reads only their runs.
#pragma once

#include "data/sampler.h"

#include <cstdint>
#include <vector>

namespace trainopt {

struct StreamLayout {
  std::vector<int64_t> runs;  ///< samples of each run; none is empty
  int64_t partitions = 8;
  int64_t window = 4096;      ///< samples that are mixed, over all partitions
  int64_t step_samples = 32;  ///< over all ranks and micro-batches

  int64_t samples() const;
  /// Samples of one partition's window, at least.
  int64_t window_of_partition() const;
};

class StreamOrder {
 public:
  /// `key`: seed and epoch.
  StreamOrder(const StreamLayout& layout, uint64_t key);
  int64_t operator()(int64_t position) const;

 private:
  int64_t place_of(int64_t position) const;
  int64_t partition_begin(int64_t partition) const;
  void find_windows(const StreamLayout& layout);

  int64_t samples_, partitions_, step_samples_;
  uint64_t key_;
  std::vector<int64_t> run_starts_, first_samples_;  ///< each run's place in the line, and its first sample
  std::vector<int64_t> window_starts_;               ///< places; the last one is the end
};

}  // namespace trainopt
