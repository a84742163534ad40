// A loss far above those before it: worth a line, so that somebody looks; never more than that.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

namespace trainopt {

class LossSpikes {
 public:
  static constexpr double kFactor = 3;  ///< times the median of those before
  static constexpr size_t kWindow = 64, kFewest = 32;

  /// The median that `loss` is a spike against, if it is one. Then the window begins anew: a loss that stays high is
  /// said once.
  std::optional<double> add(double loss);

 private:
  std::deque<double> before_;
};

}  // namespace trainopt
