// The batch that the trainer receives.
#pragma once

#include "data/dataset.h"
#include "data/schedule.h"
#include "data/token_counts.h"

#include <ATen/core/Tensor.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

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
  int64_t step_items = 0;  ///< samples in the whole step: all micro-batches, all ranks
  /// Text: for each sample, how many targets are tokens, not kNoTarget. Empty for images, whose samples all count as
  /// one.
  std::vector<int64_t> target_tokens;
  int64_t tokens = 0;       ///< the sum of target_tokens; 0 for images
  int64_t step_tokens = 0;  ///< tokens in the whole step, like step_items; 0 for images
  double weight = 1;     ///< the batch mean's weight in the step's: tokens ÷ step_tokens; images: items ÷ step_items
  bool is_first = true;  ///< first micro-batch of its step
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

// A loader's memory: batch buffers that are allocated once and used in rotation.

/// Layout of the samples in a batch.
struct BufferFormat {
  ImageSize size;
  int64_t tokens = 0;     ///< text: most tokens of a row; 0: images
  bool as_uint8 = false;  ///< [items, height, width, 3] for preprocessing on the device
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;  ///< float32 images' layout [items, 3, height, width]
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

// How a batch's images and the activations computed from them are stored.

struct TensorFormat {
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;  ///< layout of batches, activations and filters
  /// The type that forward computes in: float32, or autocast's type. Images finished on the device have this type;
  /// those finished on the host are float32.
  at::ScalarType compute_type = at::kFloat;
};

}  // namespace trainopt
