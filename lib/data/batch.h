// The batch that the trainer receives.
#pragma once

#include "data/schedule.h"
#include "data/token_counts.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <vector>

namespace trainopt {

/// One micro-batch on the device. On the CPU its tensors are views of the loader's memory, valid until the next call of
/// BatchSource::next().
struct Batch {
  // Tensors whose first dimension is [items]. A task that needs another one (a mask) adds it here and to kBatchFields.
  // A tensor that the data set does not provide stays undefined.
  at::Tensor input;   ///< images: [items, 3, h, w] float32, or a 16-bit type (TensorFormat::compute_type); text:
                      ///< [items, tokens] int64, 0 after a document's end
  at::Tensor target;  ///< labels: [items] int64; text: [items, tokens] int64, kNoTarget after a document's end
  std::vector<int64_t> sample_ids;
  int64_t items = 0;       ///< samples on this rank
  int64_t step_items = 0;  ///< in the whole step: all micro-batches, all ranks
  /// Text: for each sample, how many targets are tokens, not kNoTarget. Empty for images, whose samples all count as
  /// one.
  std::vector<int64_t> target_tokens;
  int64_t tokens = 0;       ///< their sum; 0 for images
  int64_t step_tokens = 0;  ///< in the whole step, like step_items; 0 for images
  double weight = 1;        ///< of the batch's mean in the step's: tokens ÷ step_tokens; images: items ÷ step_items
  bool is_first = true;     ///< first micro-batch of its step
  bool is_last = true;
  int64_t epoch = 0;
  int64_t step = 0;  ///< counted from 0 over all epochs
  int64_t micro = 0;
};

/// All tensors of a batch, for code that treats them alike (slicing, copying, retaining): `batch.*field`.
inline constexpr std::array<at::Tensor Batch::*, 2> kBatchFields = {&Batch::input, &Batch::target};

/// The batch at `where` in the run. `counts`: of text.
Batch make_batch(const MicroBatch& where, at::Tensor input, at::Tensor target, std::vector<int64_t> sample_ids,
                 TokenCounts counts = {});

}  // namespace trainopt
