// Weights of a resize as tensors, for kernels and tensor operations.
#pragma once

#include <ATen/core/Tensor.h>

namespace trainopt {

/// Of lines of `shortest`, `shortest` + 1, … samples, all made into `output` samples; each a ResampleTable.
struct ResizeWeights {
  int64_t shortest;
  at::Tensor first, count;  ///< int32 [lines, output]
  at::Tensor coefficients;  ///< int32 [lines, output, taps]; zero behind `count`
};
ResizeWeights make_resize_weights(int64_t shortest, int64_t longest, int64_t output, c10::Device device);

/// Lines of `images`, uint8 [items, h, w, 3], along dimension `dim`: of item i its samples from begin[i] on, length[i]
/// of them, are resized and rounded to bytes. Both int64 [items], on the images' device as the weights are.
at::Tensor resize_lines(const at::Tensor& images, int64_t dim, const ResizeWeights& weights, const at::Tensor& begin,
                        const at::Tensor& length);

}  // namespace trainopt
