// A loader's memory: batch buffers that are allocated once and used in rotation.
#pragma once

#include "data/dataset.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace trainopt {

/// Layout of the samples in a batch.
struct BufferFormat {
  ImageSize size;
  int64_t tokens = 0;     ///< text: most tokens of a row; 0: images
  bool as_uint8 = false;  ///< [items, height, width, 3] for preprocessing on the device
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;  ///< of float32 images [items, 3, height, width]
};

/// Bytes of one batch: inputs, targets and sample ids.
int64_t batch_bytes(const BufferFormat& format, int64_t batch_size);

/// Number of slots: num_workers × prefetch_factor + 2 (2 without workers), limited to what fits into `memory_limit`
/// bytes. Throws UserError(recipe) if fewer than two fit.
int64_t slot_count(int64_t num_workers, int64_t prefetch_factor, int64_t batch_bytes, int64_t memory_limit);

/// How many of `slots` buffers of `slot_bytes` to put into each allocation to minimise the total. libtorch rounds every
/// page-locked allocation up to a power of two bytes. The total is at most 1.2 times the bytes needed from 16 slots up,
/// and up to twice for two slots.
std::vector<int64_t> slots_by_allocation(int64_t slots, int64_t slot_bytes);

struct BatchBuffer {
  /// Where sample `i` belongs. `width`: of text, tokens of this batch's rows; at most BufferFormat::tokens.
  SamplePlace place(int64_t i, int64_t width) const;
  // Views of the first `items` samples.
  at::Tensor input(int64_t items, int64_t width) const;
  at::Tensor target(int64_t items, int64_t width) const;

  std::vector<int64_t> sample_ids;

 private:
  friend std::vector<BatchBuffer> make_buffers(const BufferFormat& format, int64_t batch_size, int64_t count,
                                               bool pinned);
  /// A buffer in `bytes` [slot bytes], which may be part of a shared allocation.
  BatchBuffer(const BufferFormat& format, int64_t batch_size, const at::Tensor& bytes);

  Destination image(int64_t i) const;
  at::Tensor first(const at::Tensor& all, int64_t items, int64_t width) const;

  BufferFormat format_;
  at::Tensor input_, target_;  ///< text: flat, because batches differ in width
  uint8_t* base_;
  int64_t* targets_;
};

/// Allocates `count` buffers, grouped by slots_by_allocation(). Throws UserError if `pinned` is set and there is no
/// GPU.
std::vector<BatchBuffer> make_buffers(const BufferFormat& format, int64_t batch_size, int64_t count, bool pinned);

}  // namespace trainopt
