// Whether tensors take more memory from step to step.
#pragma once

#include "metrics/record.h"

#include <optional>
#include <string>

namespace trainopt {

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
