// Batch-norm with optional addition and ReLU, as passes over memory. Training statistics need the whole tensor before
// the first result, so forward takes two passes and backward two; the addition, ReLU and its mask are part of these
// passes.
//
// Sample tensors are 4-D, channels-last and all of one type: float32, bfloat16 or float16. Per-channel values are
// [channels] float32. Results are new tensors. With scale = weight / √(variance + ε) and shift = bias − mean · scale: y
// = scale · x + shift (Ioffe and Szegedy 2015).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace trainopt::kernels {

// RECORD_FUNCTION labels of the differentiable forms (norm/autograd.h, pool/autograd.h), forward and backward.
inline constexpr const char *kNormLabel = "trainopt::fused_batch_norm",
                            *kNormGradientLabel = "trainopt::fused_batch_norm_backward";

/// References to tensors owned elsewhere, each [channels] float32 except `batches`.
struct NormParameters {
  const at::Tensor &weight, &bias;
  const at::Tensor &running_mean, &running_var;  ///< updated by `momentum` with every batch
  const at::Tensor& batches;                     ///< 0-dim int64: number of batches so far
  double momentum, epsilon;
};

struct Moments {
  at::Tensor mean, variance;  ///< biased
};
struct ScaleShift {
  at::Tensor inverse, scale, shift;  ///< inverse = 1 / √(variance + ε)
};
/// For values with this mean and biased variance.
ScaleShift scale_shift_of(const NormParameters& norm, const at::Tensor& mean, const at::Tensor& variance);

struct GradientSums {
  at::Tensor gradient, product;  ///< Σ g and Σ g · (x − mean), per channel
};
struct Coefficients {
  at::Tensor of_weight;   ///< the weight's gradient; the bias's is GradientSums::gradient
  at::Tensor of_x, rest;  ///< x's gradient is scale · g + of_x · x + rest: mean and variance depend on x too
};

/// In every implementation, sums do not depend on the number of threads.
class NormKernels {
 public:
  virtual ~NormKernels() = default;

  /// One pass over x.
  virtual Moments moments(const at::Tensor& x) const = 0;
  /// scale · x + shift, plus `residual` if defined, through ReLU if `relu`.
  virtual at::Tensor apply(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift,
                           const at::Tensor& residual, bool relu) const = 0;

  // Per-channel work between the passes, with `count` values per channel.
  /// For a batch with these moments. Moves the running statistics towards them, with the unbiased variance as in torch,
  /// and increments the number of batches.
  virtual ScaleShift scale_shift(const Moments& moments, int64_t count, const NormParameters& norm) const;
  virtual Coefficients coefficients(const GradientSums& sums, const ScaleShift& scale_shift, const at::Tensor& mean,
                                    int64_t count) const;

  // Backward; g is the gradient of scale · x + shift.
  /// g = gradient.
  virtual GradientSums sums(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean) const = 0;
  /// g = gradient where scale · x + shift > 0: the mask is recomputed, which is cheaper than reading it.
  virtual GradientSums sums_through_relu(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& mean,
                                         const at::Tensor& scale, const at::Tensor& shift) const = 0;
  /// g = gradient where y > 0, written to `g`, which is also the gradient of the residual. `g` may be the same variable
  /// as `gradient`.
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

/// Plain libtorch operations in float32: the reference for the other implementations.
const NormKernels& reference_norm_kernels();
/// Distributes rows to a few threads. Uses the widest vectors of this CPU.
const NormKernels& cpu_norm_kernels();
/// One for each vector width of this CPU, the widest last.
std::vector<const NormKernels*> all_cpu_norm_kernels();
/// For GPUs, on the device's current stream; nullptr in builds without CUDA. Touches no GPU before it is used.
const NormKernels* cuda_norm_kernels();

}  // namespace trainopt::kernels
