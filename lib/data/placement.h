// Crops, pads and flips of a batch as a few numbers an image: the host draws, the device only looks up.
#pragma once

#include "data/image/geometry.h"
#include "data/sample_keys.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <vector>

namespace trainopt {

/// What comes before the cut.
struct ImageResize {
  ImageSize from, to;  ///< from: of whole images
  bool boxed;          ///< each image's own part is resized, otherwise the whole
};

/// Whose images a batch has.
struct DrawnBatch {
  int64_t epoch;
  std::span<const int64_t> samples;
  bool in_order;  ///< image i of those on the device is the batch's i-th; otherwise sample s has image s
};

class Placer {
 public:
  /// `transforms`: crops and flips, behind one resize or none; the first has `first_place` in the recipe's list. Throws
  /// UserError(data) where images of this size are too small for a random crop.
  Placer(const std::vector<TransformConfig>& transforms, size_t first_place, ImageSize input, uint64_t seed);

  ImageSize output_size() const { return output_size_; }
  /// Null where images keep their size.
  const std::optional<ImageResize>& resize() const { return resize_; }
  /// Whether each image has a cut, a flip or a box of its own.
  bool places() const { return rows_ > 1; }
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
