// How many tokens of a batch of text count in the loss. The loss is the mean over the step's target tokens, so a
// micro-batch weighs as much as the tokens it has. Every rank counts the whole step from the lengths of its samples:
// nothing is communicated.
#pragma once

#include "data/config.h"
#include "data/sampler.h"
#include "data/schedule.h"

#include <memory>
#include <vector>

namespace trainopt {

class TextDataset;

/// The target of a position that has none: cross-entropy's ignore_index.
inline constexpr int64_t kNoTarget = -100;

/// The target tokens of one rank's share of a micro-batch.
struct TokenCounts {
  int64_t width = 0;                ///< tokens in a row of the batch; 0 for images
  std::vector<int64_t> of_samples;  ///< target tokens of each sample
  int64_t here = 0;                 ///< the sum of of_samples
  int64_t step = 0;                 ///< target tokens in all micro-batches and ranks

  double weight() const { return static_cast<double>(here) / static_cast<double>(step); }
};

/// The width of a batch whose longest sample has `longest` target tokens. At most `context`.
int64_t padded_width(Padding padding, int64_t longest, int64_t context);

/// The counts of samples that all have `tokens` target tokens.
TokenCounts uniform_counts(const MicroBatch& where, int64_t tokens);

/// Not thread-safe.
class TokenCounter {
 public:
  TokenCounter(std::shared_ptr<const TextDataset> text, const Sampler& sampler, const BatchSchedule& schedule,
               Padding padding);
  TokenCounts operator()(const MicroBatch& where);

 private:
  int64_t count_step(const MicroBatch& where);

  std::shared_ptr<const TextDataset> text_;
  Sampler sampler_;
  BatchSchedule schedule_;
  Padding padding_;
  int64_t epoch_ = -1, step_ = -1;  ///< the epoch of order_, the step of step_tokens_
  EpochOrder order_;
  int64_t step_tokens_ = 0;
};

}  // namespace trainopt
