// A batch's crops, pads and flips as a few integers per image: the host draws them, the device only looks them up.
#pragma once

#include "data/image/geometry.h"
#include "data/sample_loader.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <vector>

namespace trainopt {

/// The resize before the crop.
struct ImageResize {
  ImageSize from, to;  ///< from: size of the complete input images
  bool boxed;          ///< each image has its own box to resize; otherwise the whole image is resized
};

/// The samples of a batch.
struct DrawnBatch {
  int64_t epoch;
  std::span<const int64_t> samples;
  bool in_order;  ///< true: image i on the device is the batch's i-th; false: sample s is image s
};

class Placer {
 public:
  /// `transforms`: at most one resize, then crops and flips; the first one has index `first_index` in the recipe's
  /// list. Throws UserError(data) if images of this size are too small for a random crop.
  Placer(const std::vector<TransformConfig>& transforms, size_t first_index, ImageSize input, uint64_t seed);

  ImageSize output_size() const { return output_size_; }
  /// Null if images keep their size.
  const std::optional<ImageResize>& resize() const { return resize_; }
  /// Whether each image has its own crop, flip or box.
  bool needs_placement() const { return rows_ > 1; }
  /// int32 [1, kWindowRows or kBoxRows; items] on the host.
  at::Tensor operator()(const DrawnBatch& batch, bool pinned) const;

 private:
  void box(Stage& stage, Rect& shown) const;

  Geometry geometry_;
  SampleKeys keys_;
  ImageSize input_, output_size_;
  std::optional<ImageResize> resize_;
  int64_t rows_ = 1;
};

}  // namespace trainopt
