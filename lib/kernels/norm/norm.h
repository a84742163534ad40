// Batch-norm with what follows it, as passes over memory. Training statistics need the whole tensor before the first
// result, so forward is two passes and backward two; the addition, ReLU and its mask are part of these passes.
//
// Tensors of samples are 4-D, channels-last, of float32, bfloat16 or float16, all of one type; values by channel are
// [channels] float32. Results are new tensors. With scale = weight / √(variance + ε) and shift = bias − mean · scale:
// y = scale · x + shift (Ioffe and Szegedy 2015).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace trainopt::kernels {

// RECORD_FUNCTION labels of the differentiable forms (norm/autograd.h, pool/autograd.h), forward and backward.
inline constexpr const char *kNormLabel = "trainopt::fused_batch_norm",
                            *kNormGradientLabel = "trainopt::fused_batch_norm_backward";

/// Refers to tensors that somebody else owns, [channels] float32 each but `batches`.
struct NormParameters {
  const at::Tensor &weight, &bias;
  const at::Tensor &running_mean, &running_var;  ///< move by `momentum` with every batch
  const at::Tensor& batches;                     ///< 0-dim int64: how many batches there were
  double momentum, epsilon;
};

struct Moments {
  at::Tensor mean, variance;  ///< biased
};
struct ScaleShift {
  at::Tensor inverse, scale, shift;  ///< inverse = 1 / √(variance + ε)
};
/// For values that have this mean and biased variance.
ScaleShift scale_shift_of(const NormParameters& norm, const at::Tensor& mean, const at::Tensor& variance);

struct GradientSums {
  at::Tensor gradient, product;  ///< Σ g and Σ g · (x − mean), by channel
};
struct Coefficients {
  at::Tensor of_weight;   ///< the weight's gradient; the bias's is GradientSums::gradient
  at::Tensor of_x, rest;  ///< x's gradient is scale · g + of_x · x + rest: mean and variance depend on x too
};

/// Every form gives the same sums on any number of threads.
class NormKernels {
 public:
  virtual ~NormKernels() = default;

  /// One pass over x.
  virtual Moments moments(const at::Tensor& x) const = 0;
  /// scale · x + shift, plus `residual` where it is defined, through ReLU if `relu`.
  virtual at::Tensor apply(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift,
                           const at::Tensor& residual, bool relu) const = 0;

  // Between the passes, by channel, with `count` values in each.
  /// For a batch with these moments. Moves the running statistics towards them, with the unbiased variance as torch
  /// does, and counts the batch.
  virtual ScaleShift scale_shift(const Moments& moments, int64_t count, const NormParameters& norm) const;
  virtual Coefficients coefficients(const GradientSums& sums, const ScaleShift& scale_shift, const at::Tensor& mean,
                                    int64_t count) const;

  // Backward, where x is known and g is the gradient of scale · x + shift.
  /// g = gradient.
  virtual GradientSums sums(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean) const = 0;
  /// g = gradient where scale · x + shift > 0: the mask is computed again, which costs less than reading it.
  virtual GradientSums sums_through_relu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean,
                                         const at::Tensor& scale, const at::Tensor& shift) const = 0;
  /// g = gradient where y > 0; written to `g`, which is the residual's gradient too. `g` may be the same variable as
  /// `gradient`.
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
};

/// libtorch's operations one after another, in float32: the others are compared with it.
const NormKernels& reference_norm_kernels();
/// A few threads, each with whole rows. Uses the widest vectors that this CPU has.
const NormKernels& cpu_norm_kernels();
/// One for each width that this CPU has, the widest last.
std::vector<const NormKernels*> all_cpu_norm_kernels();
/// For GPUs, on the device's current stream; nullptr in builds without CUDA. Touches no GPU before it is used.
const NormKernels* cuda_norm_kernels();

}  // namespace trainopt::kernels
