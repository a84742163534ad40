#include "data/token_counts.h"

#include "data/formats/text/text_dataset.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace trainopt {

int64_t padded_width(Padding padding, int64_t longest, int64_t context) {
  constexpr int64_t kSmallestBucket = 16;
  switch (padding) {
    case Padding::longest:
      return longest;
    case Padding::max:
      return context;
    case Padding::bucket:
      return std::min(context, std::max(kSmallestBucket, static_cast<int64_t>(std::bit_ceil(uint64_t(longest)))));
  }
  return context;
}

TokenCounts uniform_counts(const MicroBatch& where, int64_t tokens) {
  return {.width = tokens,
          .of_samples = std::vector<int64_t>(static_cast<size_t>(where.items), tokens),
          .here = where.items * tokens,
          .step = where.step_items * tokens};
}

TokenCounter::TokenCounter(std::shared_ptr<const TextDataset> text, const Sampler& sampler,
                           const BatchSchedule& schedule, Padding padding)
    : text_(std::move(text)), sampler_(sampler), schedule_(schedule), padding_(padding) {}

TokenCounts TokenCounter::operator()(const MicroBatch& where) {
  if (const auto uniform = text_->uniform_tokens()) return uniform_counts(where, *uniform);
  if (epoch_ != where.epoch) {
    order_ = sampler_.order(where.epoch);
    epoch_ = where.epoch;
  }
  TokenCounts counts;
  for (int64_t i = 0; i < where.items; ++i) counts.of_samples.push_back(text_->target_tokens(order_(where.first + i)));
  counts.here = std::accumulate(counts.of_samples.begin(), counts.of_samples.end(), int64_t{0});
  const auto longest = std::max_element(counts.of_samples.begin(), counts.of_samples.end());
  counts.width = padded_width(padding_, longest == counts.of_samples.end() ? 1 : *longest, text_->context());
  counts.step = count_step(where);
  return counts;
}

/// The step's target tokens, which all its micro-batches share.
int64_t TokenCounter::count_step(const MicroBatch& where) {
  if (step_ == where.step) return step_tokens_;
  step_ = where.step;
  step_tokens_ = 0;
  const int64_t first = where.step % schedule_.steps_per_epoch() * schedule_.step_samples();
  for (int64_t i = 0; i < where.step_items; ++i) step_tokens_ += text_->target_tokens(order_(first + i));
  return step_tokens_;
}

}  // namespace trainopt
