// The memory behind a loader: batch buffers allocated once and used in turn.
#pragma once

#include "data/image/pipeline.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace trainopt {

/// How images lie in a batch.
struct SlotFormat {
  ImageSize size;
  bool as_uint8 = false;                                          ///< [items, height, width, 3] for preprocessing on the device
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;  ///< of float32 [items, 3, height, width]
};

/// Images, labels and sample numbers of one batch.
int64_t batch_bytes(const SlotFormat& format, int64_t batch_size);

/// prefetch_factor × num_workers batches ready and two more (two with no workers), as many as fit into `memory_limit` bytes.
/// Throws UserError(recipe) if fewer than two fit.
int64_t slot_count(int64_t num_workers, int64_t prefetch_factor, int64_t batch_bytes, int64_t memory_limit);

struct SlotMemory {
  SlotMemory(const SlotFormat& format, int64_t batch_size, bool pinned);
  /// Where the pipeline writes image `i`.
  Destination destination(int64_t i) const;

  at::Tensor input, target;
  std::vector<int64_t> sample_ids;

 private:
  SlotFormat format_;
  uint8_t* base_;
  int64_t image_bytes_;
};

}  // namespace trainopt
