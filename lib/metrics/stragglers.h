// The rank that the others wait for, step after step: a slower machine, a slower disk, a process that shares its cores.
#pragma once

#include "metrics/record.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

struct Straggler {
  int64_t rank = 0;
  double busy_ms = 0, others_ms = 0;  ///< means over its slow steps: of the rank, and of the median of the others
  double data_wait_ms = 0;            ///< part of busy_ms
  double steps_pct = 0;               ///< of all steps: those in which it was the slowest by far

  std::string text() const;
};

class Stragglers {
 public:
  static constexpr double kFactor = 1.1;  ///< times the median of the others is slow
  static constexpr double kShare = 0.5;   ///< of the steps: a rank that is slow more often is a straggler
  static constexpr int64_t kFewest = 10;  ///< steps, to say anything

  /// A step's times by rank; nothing with one rank.
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
