#include "metrics/loss_spikes.h"

#include "metrics/summary.h"

#include <cmath>

namespace trainopt {

std::optional<double> LossSpikes::add(double loss) {
  if (!std::isfinite(loss)) return std::nullopt;
  if (before_.size() >= kMinLosses) {
    std::vector<double> values(before_.begin(), before_.end());
    const double median = percentile(values, 0.5);
    if (median > 0 && loss > kFactor * median) {
      before_.clear();
      return median;
    }
  }
  before_.push_back(loss);
  if (before_.size() > kWindow) before_.pop_front();
  return std::nullopt;
}

}  // namespace trainopt
