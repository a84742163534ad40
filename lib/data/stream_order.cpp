#include "data/stream_order.h"

#include "base/error.h"
#include "base/philox.h"

#include <algorithm>
#include <numeric>

namespace trainopt {
namespace {

/// Index of the last element that is not above `value`.
size_t last_not_above(const std::vector<int64_t>& sorted, int64_t value) {
  return static_cast<size_t>(std::upper_bound(sorted.begin(), sorted.end(), value) - sorted.begin()) - 1;
}

/// The first of `count` numbers from `begin` on that leaves this remainder, and how many of them do.
struct Every {
  int64_t first, count;
};
Every with_remainder(int64_t begin, int64_t count, int64_t divisor, int64_t remainder) {
  const int64_t first = begin + (remainder - begin % divisor + divisor) % divisor;
  return {first, first < begin + count ? (begin + count - 1 - first) / divisor + 1 : 0};
}

}  // namespace

int64_t StreamLayout::samples() const { return std::accumulate(runs.begin(), runs.end(), int64_t{0}); }

int64_t StreamLayout::window_of_partition() const { return std::max<int64_t>(1, window / partitions); }

StreamOrder::StreamOrder(const StreamLayout& layout, uint64_t key)
    : samples_(layout.samples()),
      partitions_(layout.partitions),
      step_samples_(layout.step_samples),
      key_(mix_key(key, "windows")) {
  TRAINOPT_CHECK(samples_ >= 1 && partitions_ >= 1 && step_samples_ >= 1);
  std::vector<int64_t> firsts(layout.runs.size());
  std::exclusive_scan(layout.runs.begin(), layout.runs.end(), firsts.begin(), int64_t{0});
  const KeyedPermutation shuffled(static_cast<int64_t>(layout.runs.size()), mix_key(key, "runs"));
  int64_t place = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(layout.runs.size()); ++i) {
    const auto run = static_cast<size_t>(shuffled(i));
    run_starts_.push_back(place);
    first_samples_.push_back(firsts[run]);
    place += layout.runs[run];
  }
  find_windows(layout);
}

/// Windows end where runs do. The first ones are shorter, each partition's differently, so that not all partitions need
/// new runs at once.
void StreamOrder::find_windows(const StreamLayout& layout) {
  const int64_t whole = layout.window_of_partition();
  for (int64_t partition = 0; partition < partitions_; ++partition) {
    const int64_t begin = partition_begin(partition), end = partition_begin(partition + 1);
    if (begin == end) continue;
    window_starts_.push_back(begin);
    int64_t full_at = begin + std::max<int64_t>(1, whole * (partition + 1) / partitions_);
    for (size_t run = last_not_above(run_starts_, begin) + 1; run < run_starts_.size() && run_starts_[run] < end; ++run)
      if (run_starts_[run] >= full_at) {
        window_starts_.push_back(run_starts_[run]);
        full_at = run_starts_[run] + whole;
      }
  }
  window_starts_.push_back(samples_);
}

int64_t StreamOrder::partition_begin(int64_t partition) const {
  return partition * (samples_ / partitions_) + std::min(partition, samples_ % partitions_);
}

/// The n-th sample of an epoch is of partition n mod partitions, but within a step those of a partition are neighbours,
/// so that they fall to one rank.
int64_t StreamOrder::place_of(int64_t position) const {
  const int64_t begin = position / step_samples_ * step_samples_, count = std::min(step_samples_, samples_ - begin);
  int64_t offset = position - begin;
  for (int64_t partition = 0; partition < partitions_; ++partition) {
    const Every of_partition = with_remainder(begin, count, partitions_, partition);
    if (offset < of_partition.count) return partition_begin(partition) + of_partition.first / partitions_ + offset;
    offset -= of_partition.count;
  }
  TRAINOPT_CHECK(false);
  return 0;
}

int64_t StreamOrder::operator()(int64_t position) const {
  TRAINOPT_CHECK(position >= 0 && position < samples_);
  const int64_t place = place_of(position);
  const size_t window = last_not_above(window_starts_, place);
  const int64_t begin = window_starts_[window], size = window_starts_[window + 1] - begin;
  const int64_t mixed = begin + KeyedPermutation(size, mix_key(key_, static_cast<uint64_t>(begin)))(place - begin);
  const size_t run = last_not_above(run_starts_, mixed);
  return first_samples_[run] + mixed - run_starts_[run];
}

}  // namespace trainopt
