// The memory behind a loader: batch buffers allocated once and used in turn.
#pragma once

#include "data/image/pipeline.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace trainopt {

/// How images lie in a batch.
struct BufferFormat {
  ImageSize size;
  bool as_uint8 = false;  ///< [items, height, width, 3] for preprocessing on the device
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;  ///< of float32 [items, 3, height, width]
};

/// Images, labels and sample numbers of one batch.
int64_t batch_bytes(const BufferFormat& format, int64_t batch_size);

/// prefetch_factor × num_workers batches ready and two more (two with no workers), as many as fit into `memory_limit`
/// bytes. Throws UserError(recipe) if fewer than two fit.
int64_t slot_count(int64_t num_workers, int64_t prefetch_factor, int64_t batch_bytes, int64_t memory_limit);

/// libtorch makes every page-locked allocation a power of two bytes. How many of `slots` buffers of `slot_bytes` go
/// into each allocation so that all together take the least: at most 1.2 times what is needed from 16 slots up, up to
/// twice for two.
std::vector<int64_t> slots_by_allocation(int64_t slots, int64_t slot_bytes);

struct BatchBuffer {
  /// Where the pipeline writes image `i`.
  Destination destination(int64_t i) const;

  at::Tensor input, target;
  std::vector<int64_t> sample_ids;

 private:
  friend std::vector<BatchBuffer> make_buffers(const BufferFormat& format, int64_t batch_size, int64_t count,
                                               bool pinned);
  /// In `bytes` [slot bytes], which others may own a part of.
  BatchBuffer(const BufferFormat& format, int64_t batch_size, const at::Tensor& bytes);

  BufferFormat format_;
  uint8_t* base_;
  int64_t image_bytes_;
};

/// `count` buffers in as few bytes as slots_by_allocation() finds. Throws UserError if pinned memory is asked for
/// without a GPU.
std::vector<BatchBuffer> make_buffers(const BufferFormat& format, int64_t batch_size, int64_t count, bool pinned);

}  // namespace trainopt
