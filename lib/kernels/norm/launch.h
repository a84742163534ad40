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

/// The operands of a pass; each pass documents which it uses. Samples are of `dtype`, per-channel values are float.
struct NormOperands {
  DType dtype;
  Shape shape;  ///< of x
  const void* x;
  const void *gradient = nullptr, *y = nullptr, *residual = nullptr;
  const float *mean = nullptr, *scale = nullptr, *shift = nullptr;
  const float *of_gradient = nullptr, *of_x = nullptr, *rest = nullptr;
  void* out = nullptr;                        ///< samples
  float *first = nullptr, *second = nullptr;  ///< two sums or moments per channel
  float* partials = nullptr;                  ///< work space for partials() floats
};

/// Per-channel work of a batch-norm between its passes: turns the results of moments() into a scale and a shift, and
/// moves the running statistics by `momentum`.
struct ScaleShiftOperands {
  int64_t channels;
  const float *mean, *variance, *weight, *bias;
  float *running_mean, *running_var;
  int64_t* batches;                   ///< incremented by one
  float *inverse, *scale, *shift;     ///< results
  float momentum, epsilon, unbiased;  ///< unbiased: n ÷ (n − 1), for the running variance
};
/// Turns the results of sums() into the weight's gradient and the coefficients for input_gradient().
struct CoefficientOperands {
  int64_t channels;
  const float *gradient, *product, *mean, *inverse, *scale;
  float *of_weight, *of_x, *rest;  ///< results
  float share;                     ///< −1 ÷ n
};

/// Each call queues kernels and returns. Throws std::runtime_error if a launch fails.
class NormLaunches {
 public:
  virtual ~NormLaunches() = default;

  /// Number of floats of work space that moments() and sums() need for these operands.
  virtual int64_t partials(const NormOperands& o) const = 0;
  /// Writes mean and biased variance of x to `first` and `second`.
  virtual void moments(const NormOperands& o, void* queue) const = 0;
  /// out = scale · x + shift, plus the residual if there is one, through ReLU if `relu`.
  virtual void apply(const NormOperands& o, bool relu, void* queue) const = 0;
  /// Writes Σ g and Σ g · (x − mean) to `first` and `second`. With Gate::output, also writes g to `out`.
  virtual void sums(const NormOperands& o, Gate gate, void* queue) const = 0;
  /// out = of_gradient · g + of_x · x + rest. Does not support Gate::output.
  virtual void input_gradient(const NormOperands& o, Gate gate, void* queue) const = 0;
  virtual void scale_shift(const ScaleShiftOperands& o, void* queue) const = 0;
  virtual void coefficients(const CoefficientOperands& o, void* queue) const = 0;
};

/// nullptr in builds without CUDA. Touches no GPU.
const NormLaunches* cuda_norm_launches();

}  // namespace trainopt::kernels::device
