// Batches without values, for forecasts of memory: meta tensors, and the memory that the real source would hold.
#pragma once

#include "data/batch.h"
#include "data/data_spec.h"
#include "data/loader_settings.h"
#include "data/tensor_format.h"

#include <c10/core/Device.h>

#include <vector>

namespace trainopt {

class ShapedBatches {
 public:
  /// Stands for make_batches() on `device`. Allocates what lives as long as the source: the loader's slots if batches
  /// are read in place, a data set kept on the device, synthetic images; on a GPU a batch that is copied ahead.
  ShapedBatches(const DataSpec& data, const LoaderSettings& settings, const TensorFormat& format, c10::Device device);

  /// The next micro-batch, in order from the first step on.
  Batch next();

 private:
  at::Tensor make(at::IntArrayRef sizes, at::ScalarType type) const;
  at::Tensor make_input() const;

  BatchSchedule schedule_;
  int64_t sequence_ = 0;
  int64_t width_ = 0;  ///< text: tokens of a row, as many as in the largest batch; 0: images
  ImageSize image_;
  at::MemoryFormat memory_format_;
  at::ScalarType type_ = at::kFloat;  ///< of images
  at::Tensor input_;                  ///< defined: every batch's
  std::vector<at::Tensor> resident_;
};

}  // namespace trainopt
