// The last of an image's way, where its batch lies: resize, cut, pad with black, mirror, scale, normalise and lay out.
#pragma once

#include "data/cuda/finish.h"
#include "data/image/image.h"
#include "data/image/normalization.h"
#include "data/placement.h"
#include "data/resize_weights.h"

#include <ATen/core/Tensor.h>

namespace trainopt {

class ImageFinish {
 public:
  struct Result {
    ImageSize size;
    at::ScalarType type = at::kFloat;  ///< or bfloat16, float16: the float32 numbers rounded to nearest, ties to even
    at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;
  };
  /// `resize`: null for images that keep their size.
  ImageFinish(const std::optional<ImageResize>& resize, const Normalization& normalization, const Result& result,
              c10::Device device);

  /// `images`: uint8 [n, h, w, 3]. `placement`: Placer's, on the same device; undefined for all images as they are, in
  /// order. Gives [items, 3, height, width] with the bits of the loader's own path. On a CPU image by image, the resize
  /// being the loader's; on a GPU in one kernel, if the build has it.
  at::Tensor operator()(const at::Tensor& images, const at::Tensor& placement) const;
  /// The same as tensor operations: the obvious twin, and what runs on devices for which the build has no kernel.
  at::Tensor reference(const at::Tensor& images, const at::Tensor& placement) const;
  /// The same by this kernel, queued on the device's current stream.
  at::Tensor by_kernel(kernels::FinishKernel kernel, const at::Tensor& images, const at::Tensor& placement) const;

 private:
  at::Tensor one_pass(const at::Tensor& images, const at::Tensor& placement) const;
  void check(const at::Tensor& images, const at::Tensor& placement) const;
  at::Tensor make_batch(const at::Tensor& images, const at::Tensor& placement) const;
  struct Weights {
    ResizeWeights rows, columns;
  };
  Weights make_weights(c10::Device device) const;
  Weights weights() const { return weights_ ? *weights_ : make_weights(at::kCPU); }
  at::Tensor resized(const at::Tensor& images, const at::Tensor& placement) const;

  std::optional<ImageResize> resize_;
  Result result_;
  at::Tensor full_scale_, mean_, std_;    // on the device; mean and std undefined where they would change nothing
  at::Tensor levels_, levels_on_device_;  // [3, 256] of the result's type: what becomes of each grey level, by channel
  std::optional<Weights> weights_;        // of a resize, where the CPU's own code does not do it
};

}  // namespace trainopt
