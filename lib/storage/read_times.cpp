#include "storage/read_times.h"

#include <algorithm>
#include <cmath>

namespace trainopt {

Clock::time_point ReadTimes::begin() {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  if (under_way_++ == 0) active_since_ = now;
  return now;
}

void ReadTimes::end(Clock::time_point began) {
  add(seconds_since(began));
  const std::lock_guard lock(mutex_);
  if (--under_way_ == 0) active_s_ += seconds_since(active_since_);
}

void ReadTimes::add(double seconds) {
  const auto bin = static_cast<int64_t>(kOfOctave * std::log2(std::max(seconds, kLeast) / kLeast));
  const std::lock_guard lock(mutex_);
  ++bins_[static_cast<size_t>(std::clamp<int64_t>(bin, 0, std::ssize(bins_) - 1))];
  ++reads_;
  reading_s_ += seconds;
}

/// The middle of the bin, on a logarithmic scale.
double ReadTimes::percentile_ms(double share) const {
  const double wanted = share * static_cast<double>(reads_);
  int64_t seen = 0;
  for (size_t bin = 0; bin < bins_.size(); ++bin)
    if (seen += bins_[bin]; seen > 0 && static_cast<double>(seen) >= wanted)
      return 1e3 * kLeast * std::exp2((static_cast<double>(bin) + 0.5) / kOfOctave);
  return 0;
}

ReadSpeed ReadTimes::speed() const {
  const std::lock_guard lock(mutex_);
  return {.reads = reads_,
          .active_s = active_s_ + (under_way_ > 0 ? seconds_since(active_since_) : 0),
          .reading_s = reading_s_,
          .fast_ms = percentile_ms(0.05),
          .median_ms = percentile_ms(0.5),
          .slow_ms = percentile_ms(0.99)};
}

}  // namespace trainopt
