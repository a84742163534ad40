#include "storage/read_times.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace trainopt {

Clock::time_point ReadTimes::begin() {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  if (under_way_++ == 0) active_since_ = now;
  return now;
}

void ReadTimes::end(Clock::time_point began, int64_t bytes) {
  add(seconds_since(began), bytes);
  const std::lock_guard lock(mutex_);
  if (--under_way_ == 0) active_s_ += seconds_since(active_since_);
}

void ReadTimes::add(double seconds, int64_t bytes) {
  const auto bin = static_cast<int64_t>(kOfOctave * std::log2(std::max(seconds, kLeast) / kLeast));
  const auto size = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(bytes, 0))) / 2);
  const std::lock_guard lock(mutex_);
  OfSize& of_size = sizes_[std::min(size, kSizes - 1)];
  ++of_size.bins[static_cast<size_t>(std::clamp<int64_t>(bin, 0, std::ssize(of_size.bins) - 1))];
  ++of_size.reads;
  of_size.bytes += bytes;
  ++reads_;
  reading_s_ += seconds;
}

/// The middle of the bin, on a logarithmic scale.
double ReadTimes::OfSize::percentile_ms(double share) const {
  const double wanted = share * static_cast<double>(reads);
  int64_t seen = 0;
  for (size_t bin = 0; bin < bins.size(); ++bin)
    if (seen += bins[bin]; seen > 0 && static_cast<double>(seen) >= wanted)
      return 1e3 * kLeast * std::exp2((static_cast<double>(bin) + 0.5) / kOfOctave);
  return 0;
}

ReadSpeed ReadTimes::speed() const {
  const std::lock_guard lock(mutex_);
  const OfSize& most = *std::max_element(sizes_.begin(), sizes_.end(),
                                         [](const OfSize& a, const OfSize& b) { return a.bytes < b.bytes; });
  return {.reads = reads_,
          .active_s = active_s_ + (under_way_ > 0 ? seconds_since(active_since_) : 0),
          .reading_s = reading_s_,
          .fast_ms = most.percentile_ms(0.05),
          .median_ms = most.percentile_ms(0.5),
          .slow_ms = most.percentile_ms(0.99)};
}

}  // namespace trainopt
