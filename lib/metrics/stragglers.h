// Finds a rank that the others wait for in most steps: a slower machine, a slower disk, a process that shares its
// cores.
#pragma once

#include "metrics/record.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

struct Straggler {
  int64_t rank = 0;
  double busy_ms = 0, others_ms = 0;  ///< means over its slow steps: its own time, and the others' median
  double data_wait_ms = 0;            ///< part of busy_ms
  double steps_pct = 0;               ///< share of all steps in which it was slow

  std::string text() const;
};

class Stragglers {
 public:
  static constexpr double kFactor = 1.1;    ///< a rank is slow above this many times the others' median
  static constexpr double kShare = 0.5;     ///< a straggler is slow in more than this share of the steps
  static constexpr int64_t kMinSteps = 10;  ///< with fewer steps there is no finding

  /// Adds a step's times by rank; does nothing with one rank.
  void add(const std::vector<RankTimes>& ranks);
  std::optional<Straggler> found() const;

 private:
  struct Slow {
    int64_t steps = 0;
    double busy_ms = 0, others_ms = 0, data_wait_ms = 0;  ///< sums
  };
  int64_t steps_ = 0;
  std::vector<Slow> slow_;  ///< by rank
};

}  // namespace trainopt
