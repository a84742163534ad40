// Conditions during a run that make its throughput hard to compare.
#pragma once

#include "metrics/record.h"
#include "statistics/block_bootstrap.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trainopt {

/// "power cap, heat": the names of the bits of gpu_throttle (catalogue.h).
std::string throttle_reasons(int64_t bits);

class Conditions {
 public:
  void add(const StepRecord& row);

  /// Allocations, from the first added step on, for which libtorch's allocator first had to empty its cache; nullopt:
  /// not measured. Those in the first step itself are not known.
  std::optional<int64_t> alloc_retries() const;

  /// One sentence for each of these: other programs used more than 10 % of the CPUs; the GPU's clock was throttled;
  /// allocations had to be retried; the throughput of the last third of `pieces` differs from the first third's by more
  /// than 2 %, and the 99 % interval of their ratio excludes 1.
  std::vector<std::string> warnings(std::span<const Piece> pieces) const;

 private:
  double other_cpu_ = 0, other_cpu_ms_ = 0;  ///< percent times milliseconds; milliseconds
  double throttled_ms_ = 0, throttle_known_ms_ = 0;
  int64_t throttle_bits_ = 0;
  std::optional<double> least_retries_, most_retries_;  ///< counted since the process started
};

}  // namespace trainopt
