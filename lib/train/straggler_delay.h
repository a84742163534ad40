// The delay of an injected straggler (inject.h).
#pragma once

#include <cstdint>
#include <vector>

namespace trainopt {

/// Makes every step from `first` on 5 % longer than the median of the steps before it.
class StragglerDelay {
 public:
  static constexpr double kShare = 0.05;
  static constexpr int64_t kMeasuredSteps = 4;  ///< at least so many steps come before `first`

  explicit StragglerDelay(int64_t first) : first_(first) {}

  /// Seconds to sleep at the end of `step`, which has taken `seconds` so far. Call once per step. Throws UserError if
  /// fewer than kMeasuredSteps came before `first`, as after a resume.
  double after(int64_t step, double seconds);

 private:
  int64_t first_;
  std::vector<double> before_;  ///< seconds of the steps before `first_`
};

}  // namespace trainopt
