// The passes of HeadKernels over raw memory, as GPU kernels run them. No libtorch and no CUDA in this header.
#pragma once

#include "kernels/dtype.h"

#include <cstdint>

namespace trainopt::kernels::device {

/// One side is images × pixels × channels of `dtype`, channels-last, with at most 2³¹ − 1 pixels in all; the other is
/// images × channels.
struct MeanOperands {
  DType dtype;
  int64_t images, pixels, channels;
  const void* from;
  void* to;
};

/// rows × classes of `dtype`.
struct LossOperands {
  DType dtype;
  int64_t rows, classes;
  const void* logits;
  const int64_t* targets;  ///< one per row; one that is out of range gives NaN
  void* gradient;          ///< of the sum over rows, × gradient_scale
  float* row_losses;
  float* loss;  ///< the mean of row_losses
  float smoothing, gradient_scale;
};

/// values ← values · upstream · factor
struct ScaleOperands {
  DType dtype;
  int64_t rows, classes;
  void* values;
  const float* upstream;
  float factor;
};

/// Each call queues kernels and returns. Throws std::runtime_error if a launch fails.
class HeadLaunches {
 public:
  virtual ~HeadLaunches() = default;
  virtual void mean(const MeanOperands& o, void* queue) const = 0;
  /// Writes images × channels, ÷ pixels, to every pixel.
  virtual void mean_gradient(const MeanOperands& o, void* queue) const = 0;
  virtual void cross_entropy(const LossOperands& o, void* queue) const = 0;
  virtual void finish_gradient(const ScaleOperands& o, void* queue) const = 0;
};

/// nullptr in builds without CUDA. Touches no GPU.
const HeadLaunches* cuda_head_launches();

}  // namespace trainopt::kernels::device
