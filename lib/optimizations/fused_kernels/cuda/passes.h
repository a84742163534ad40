// The passes of NormKernels over bare memory, as a GPU's kernels run them: pointers, sizes, a queue. No libtorch and no
// CUDA in this header.
#pragma once

#include "kernels/dtype.h"

#include <cstdint>

namespace trainopt::fused_kernels::cuda {

using namespace trainopt::kernels;  // what all kernels have

/// Rows of channels, one a pixel: channels-last memory. At most 2³¹ − 1 pixels; elements are counted in 64 bits.
struct Shape {
  int64_t images, height, width, channels;
  constexpr int64_t pixels() const { return images * height * width; }
  /// Of a max-pool 3×3 with stride 2 and padding 1.
  constexpr Shape pooled() const { return {images, (height + 1) / 2, (width + 1) / 2, channels}; }
};

/// What a pass reads and writes; each says which. Samples are of `number`, values by channel are floats.
struct Operands {
  DType dtype;
  Shape shape;  ///< of x
  const void* x;
  const void *gradient = nullptr, *y = nullptr, *residual = nullptr;
  const float *mean = nullptr, *scale = nullptr, *shift = nullptr;
  const float *of_gradient = nullptr, *of_x = nullptr, *rest = nullptr;
  const uint8_t* places = nullptr;  ///< of the pool, as the gradient
  void* out = nullptr;              ///< samples
  uint8_t* places_out = nullptr;
  void* chosen_out = nullptr;                 ///< samples, as the pool's values
  float *first = nullptr, *second = nullptr;  ///< two sums or moments by channel
  float* partials = nullptr;                  ///< room for Passes::partials() floats
};

/// Which part of the gradient counts: all; where scale · x + shift is positive; where y is. Of a pool's gradient,
/// smaller than x: at the places that the values came from; and where x is what the pool chose, and as large: where
/// there is a place.
enum class Gate { open, relu, output, pooled, chosen };

/// A batch-norm between its passes, by channel: what moments() gave becomes its line, and its running statistics move
/// by `momentum`.
struct LineOperands {
  int64_t channels;
  const float *mean, *variance, *weight, *bias;
  float *running_mean, *running_var;
  int64_t* batches;                   ///< counted up by one
  float *inverse, *scale, *shift;     ///< results
  float momentum, epsilon, unbiased;  ///< unbiased: n ÷ (n − 1), for the running variance
};
/// What sums() gave becomes the weight's gradient and the combination for input_gradient().
struct CoefficientOperands {
  int64_t channels;
  const float *gradient, *product, *mean, *inverse, *scale;
  float *of_weight, *of_x, *rest;  ///< results
  float share;                     ///< −1 ÷ n
};

/// Each call queues kernels and returns. Throws std::runtime_error if one cannot start.
class Passes {
 public:
  virtual ~Passes() = default;

  /// Floats of work space that moments() and sums() need for these operands.
  virtual int64_t partials(const Operands& o) const = 0;
  /// Mean and biased variance of x: `first`, `second`.
  virtual void moments(const Operands& o, void* queue) const = 0;
  /// out = scale · x + shift, plus the residual where there is one, through ReLU if `relu`.
  virtual void apply(const Operands& o, bool relu, void* queue) const = 0;
  /// Σ g and Σ g · (x − mean): `first`, `second`; behind Gate::output g goes to `out`. Not behind Gate::pooled.
  virtual void sums(const Operands& o, Gate gate, void* queue) const = 0;
  /// out = of_gradient · g + of_x · x + rest; not behind Gate::output and Gate::chosen.
  virtual void input_gradient(const Operands& o, Gate gate, void* queue) const = 0;
  /// out, places_out and chosen_out: max-pool of ReLU(scale · x + shift).
  virtual void pool(const Operands& o, void* queue) const = 0;
  virtual void line(const LineOperands& o, void* queue) const = 0;
  virtual void coefficients(const CoefficientOperands& o, void* queue) const = 0;
};

/// nullptr in builds without CUDA. Touches no GPU.
const Passes* cuda_passes();

}  // namespace trainopt::fused_kernels::cuda
