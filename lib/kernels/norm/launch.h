// The passes of NormKernels over raw memory, as GPU kernels run them: pointers, sizes, a queue. No libtorch and no CUDA
// in this header.
#pragma once

#include "kernels/dtype.h"
#include "kernels/norm/gate.h"

#include <cstdint>

namespace trainopt::kernels::device {

/// Channels-last memory: one row of channels per pixel. At most 2³¹ − 1 pixels; elements are counted in 64 bits.
struct Shape {
  int64_t images, height, width, channels;
  constexpr int64_t pixels() const { return images * height * width; }
};

/// Results of a forward pass, and what it takes besides x. Arrays have one value per channel, `batches` has one in all.
struct StatisticsOperands {
  const float *weight, *bias;
  float *running_mean, *running_var;
  int64_t* batches;  ///< incremented by one
  float *mean, *inverse, *scale, *shift;
  /// unbiased: n ÷ (n − 1), for the running variance. With n = 1 that variance becomes NaN, as in libtorch.
  float momentum, epsilon, unbiased;
};
/// Results of a backward pass, and what it takes besides the gradient and x.
struct CoefficientOperands {
  const float *mean, *inverse, *scale;
  float *of_bias, *of_weight, *of_x, *rest;
  float share;  ///< −1 ÷ n
};

/// The operands of a pass; each pass documents which it uses. Samples are of `dtype`, per-channel values are float.
struct NormOperands {
  DType dtype;
  Shape shape;  ///< x's shape
  const void* x;
  const void *gradient = nullptr, *y = nullptr, *residual = nullptr;
  const float *mean = nullptr, *scale = nullptr, *shift = nullptr;
  const float *of_x = nullptr, *rest = nullptr;
  void* out = nullptr;        ///< samples
  float* partials = nullptr;  ///< work space for partials() floats
};

/// Each call queues kernels and returns. Throws std::runtime_error if a launch fails.
class NormLaunches {
 public:
  virtual ~NormLaunches() = default;

  /// Number of floats of work space that statistics() and coefficients() need for these operands.
  virtual int64_t partials(const NormOperands& o) const = 0;
  virtual void statistics(const NormOperands& o, const StatisticsOperands& results, void* queue) const = 0;
  /// out = scale · x + shift, plus the residual if there is one, through ReLU if `relu`.
  virtual void apply(const NormOperands& o, bool relu, void* queue) const = 0;
  /// Also writes g to `out` if the gate is Gate::output.
  virtual void coefficients(const NormOperands& o, Gate gate, const CoefficientOperands& results,
                            void* queue) const = 0;
  /// out = scale · g + of_x · x + rest. Does not support Gate::output.
  virtual void input_gradient(const NormOperands& o, Gate gate, void* queue) const = 0;
};

/// nullptr without libtrainopt_cuda.so. Touches no GPU.
const NormLaunches* cuda_norm_launches();

}  // namespace trainopt::kernels::device
