// The batch that the trainer receives.
#pragma once

#include "data/schedule.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <vector>

namespace trainopt {

/// One micro-batch on the device. On the CPU its tensors are views of the loader's memory, valid until the next call of
/// BatchSource::next().
struct Batch {
  // Tensors whose first dimension is [items]. A task that needs another one (a mask) adds it here and to kBatchFields.
  // A tensor that the data set does not provide stays undefined.
  at::Tensor input;   ///< images: [items, 3, h, w] float32, or a 16-bit type (TensorFormat::compute_type)
  at::Tensor target;  ///< labels: [items] int64
  std::vector<int64_t> sample_ids;
  int64_t items = 0;                    ///< on this rank
  int64_t step_items = 0;               ///< in the whole step: all micro-batches, all ranks
  int64_t tokens = 0, step_tokens = 0;  ///< to predict, without padding: of items and step_items; 0 for images
  double weight = 1;                    ///< items ÷ step_items, or tokens ÷ step_tokens
  bool is_first = true;                 ///< first micro-batch of its step
  bool is_last = true;
  int64_t epoch = 0;
  int64_t step = 0;  ///< counted from 0 over all epochs
  int64_t micro = 0;
};

/// All tensors of a batch, for code that treats them alike (slicing, copying, retaining): `batch.*field`.
inline constexpr std::array<at::Tensor Batch::*, 2> kBatchFields = {&Batch::input, &Batch::target};

/// A batch of images, labels and sample ids; its position in the run comes from `where`.
Batch image_batch(const MicroBatch& where, at::Tensor input, at::Tensor target, std::vector<int64_t> sample_ids);

}  // namespace trainopt
