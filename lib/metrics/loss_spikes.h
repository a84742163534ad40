// Detects a loss far above the previous ones, for a line in the log.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

namespace trainopt {

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

}  // namespace trainopt
