// Batch-norm with what follows it, as passes over memory. Training statistics need the whole tensor before the first
// result, so forward is two passes and backward two; the addition, ReLU and its mask ride along in them.
//
// Tensors of samples are 4-D, channels-last, of float32, bfloat16 or float16, all of one type; values by channel are
// [channels] float32. With scale = weight / √(variance + ε) and shift = bias − mean · scale: y = scale · x + shift
// (Ioffe and Szegedy 2015).
#pragma once

#include "model/layers.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace trainopt::fused_kernels {

struct Moments {
  at::Tensor mean, variance;  ///< biased
};
struct Line {
  at::Tensor inverse, scale, shift;  ///< inverse = 1 / √(variance + ε)
};
/// Of `norm` where values have this mean and biased variance.
Line line_of(const BatchNorm2d& norm, const at::Tensor& mean, const at::Tensor& variance);

struct GradientSums {
  at::Tensor gradient, product;  ///< Σ g and Σ g · (x − mean), by channel
};
struct Coefficients {
  at::Tensor of_weight;   ///< the weight's gradient; the bias's is GradientSums::gradient
  at::Tensor of_x, rest;  ///< x's gradient is scale · g + of_x · x + rest: through x itself, and through mean and
                          ///< variance, which are of x too
};
struct Pooled {
  at::Tensor values;
  at::Tensor places;  ///< uint8: where in the 3×3 window the value was, row by row; 9: nowhere, all were ≤ 0
  at::Tensor chosen;  ///< x there; anything where there is no place
};

class NormKernels {
 public:
  virtual ~NormKernels() = default;

  /// One pass over x.
  virtual Moments moments(const at::Tensor& x) const = 0;
  /// scale · x + shift, plus `residual` where it is defined, through ReLU if `relu`.
  virtual at::Tensor apply(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift,
                           const at::Tensor& residual, bool relu) const = 0;

  // Between the passes, by channel, with `count` values in each.
  /// What a batch with these moments makes of `norm`, whose running statistics move towards them (their variance is the
  /// unbiased one, as torch's).
  virtual Line line(const Moments& moments, int64_t count, const BatchNorm2d& norm) const;
  virtual Coefficients coefficients(const GradientSums& sums, const Line& line, const at::Tensor& mean,
                                    int64_t count) const;

  // Backward, where x is known and g is the gradient of scale · x + shift.
  /// g = gradient.
  virtual GradientSums sums(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean) const = 0;
  /// g = gradient where scale · x + shift > 0: the mask is computed again, which costs less than reading it.
  virtual GradientSums sums_through_relu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean,
                                         const at::Tensor& scale, const at::Tensor& shift) const = 0;
  /// g = gradient where y > 0; written to `g`, which is the residual's gradient too.
  virtual GradientSums sums_through_output(const at::Tensor& gradient, const at::Tensor& y, const at::Tensor& x,
                                           const at::Tensor& mean, at::Tensor& g) const = 0;
  /// of_gradient · g + of_x · x + rest
  virtual at::Tensor input_gradient(const at::Tensor& g, const at::Tensor& x, const at::Tensor& of_gradient,
                                    const at::Tensor& of_x, const at::Tensor& rest) const = 0;
  /// The same with g as in sums_through_relu().
  virtual at::Tensor input_gradient_through_relu(const at::Tensor& gradient, const at::Tensor& x,
                                                 const at::Tensor& of_gradient, const at::Tensor& of_x,
                                                 const at::Tensor& rest, const at::Tensor& scale,
                                                 const at::Tensor& shift) const = 0;

  // The stem: max-pool 3×3 with stride 2 and padding 1 of ReLU(scale · x + shift); the first of equal x counts, of x
  // that only rounding makes equal any; NaN above all (its place may be any).
  virtual Pooled pool(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift) const = 0;
  /// g = gradient at the places that the values came from.
  virtual GradientSums sums_through_pool(const at::Tensor& gradient, const Pooled& pooled,
                                         const at::Tensor& mean) const = 0;  ///< needs no values
  virtual at::Tensor input_gradient_through_pool(const at::Tensor& gradient, const at::Tensor& places,
                                                 const at::Tensor& x, const at::Tensor& of_gradient,
                                                 const at::Tensor& of_x, const at::Tensor& rest) const = 0;
};

/// libtorch's operations one after another, in float32: what the others are compared with.
const NormKernels& reference_kernels();
/// A few threads, each with whole rows; sums do not depend on how many there are. With the widest vectors that this CPU
/// has.
const NormKernels& cpu_kernels();
/// One for each width that this CPU has, the widest last.
std::vector<const NormKernels*> all_cpu_kernels();
/// A GPU's own, on the device's current stream; nullptr in builds without CUDA. Touches no GPU before it is used.
const NormKernels* cuda_kernels();

}  // namespace trainopt::fused_kernels
