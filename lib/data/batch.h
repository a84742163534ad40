// What the trainer sees of the data.
#pragma once

#include "base/error.h"
#include "data/schedule.h"

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainopt {

/// One micro-batch on the device. On the CPU its tensors are the loader's own memory and hold until the next batch is
/// asked for.
struct Batch {
  std::vector<std::pair<std::string, at::Tensor>>
      tensors;  ///< images: "input" [items, 3, h, w] float32 (or 16 bits, see BatchesOptions::compute_type), "target"
                ///< [items] int64
  std::vector<int64_t> sample_ids;
  int64_t items = 0;       ///< on this rank
  int64_t step_items = 0;  ///< of the whole step: all micro-batches, all ranks
  double weight = 1;       ///< items ÷ step_items
  bool is_first = true;    ///< of its step
  bool is_last = true;
  int64_t epoch = 0;
  int64_t step = 0;  ///< from 0, over all epochs
  int64_t micro = 0;

  const at::Tensor& get(std::string_view name) const {
    for (const auto& [key, tensor] : tensors)
      if (key == name) return tensor;
    broken_invariant(__FILE__, __LINE__, fmt::format("the batch has no tensor {}", name));
  }
};

/// Images with their labels and numbers, at their place in the run.
Batch image_batch(const MicroBatch& where, at::Tensor input, at::Tensor target, std::vector<int64_t> sample_ids);

}  // namespace trainopt
