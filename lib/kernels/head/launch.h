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

/// The target of rows that count for nothing, if they may.
inline constexpr int64_t kIgnoredTarget = -100;

/// rows × classes of `dtype`.
struct LossOperands {
  DType dtype;
  int64_t rows, classes;
  /// Values from a row to the next. Logits past the classes must be −∞; their gradient is 0.
  int64_t stride;
  const void* logits;
  const int64_t* targets;  ///< one per row; one that is out of range gives NaN
  bool ignores;            ///< kIgnoredTarget gives loss and gradient 0
  void* gradient;          ///< gradient of the sum over rows, × gradient_scale; may be `logits`; null: not wanted
  float* row_losses;
  float smoothing, gradient_scale;
};

/// The mean over rows.
struct MeanLossOperands {
  int64_t rows;
  const float* row_losses;
  const int64_t* targets;  ///< null: no row is ignored
  float* loss;             ///< NaN if all rows are ignored
  float* share;            ///< 1 ÷ the number of rows that are not ignored, at least 1; null: not wanted
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
  virtual void mean_loss(const MeanLossOperands& o, void* queue) const = 0;
  virtual void finish_gradient(const ScaleOperands& o, void* queue) const = 0;
};

/// nullptr without libtrainopt_cuda.so. Touches no GPU.
const HeadLaunches* cuda_head_launches();

}  // namespace trainopt::kernels::device
