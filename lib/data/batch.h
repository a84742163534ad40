// What the trainer sees of the data.
#pragma once

#include "data/schedule.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <vector>

namespace trainopt {

/// One micro-batch on the device. On the CPU its tensors are the loader's own memory and hold until the next batch is
/// asked for.
struct Batch {
  // Tensors, which begin with the dimension [items]. A task that needs more of them (a mask) adds its own here and to
  // kBatchFields; what a data set does not give stays undefined.
  at::Tensor input;   ///< images: [items, 3, h, w] float32, or of 16 bits (TensorFormat::compute_type)
  at::Tensor target;  ///< labels: [items] int64
  std::vector<int64_t> sample_ids;
  int64_t items = 0;       ///< on this rank
  int64_t step_items = 0;  ///< of the whole step: all micro-batches, all ranks
  double weight = 1;       ///< items ÷ step_items
  bool is_first = true;    ///< of its step
  bool is_last = true;
  int64_t epoch = 0;
  int64_t step = 0;  ///< from 0, over all epochs
  int64_t micro = 0;
};

/// All tensors of a batch, for whoever treats them alike (cuts, copies, keeps them): `batch.*field`.
inline constexpr std::array<at::Tensor Batch::*, 2> kBatchFields = {&Batch::input, &Batch::target};

/// Images with their labels and numbers, at their place in the run.
Batch image_batch(const MicroBatch& where, at::Tensor input, at::Tensor target, std::vector<int64_t> sample_ids);

}  // namespace trainopt
