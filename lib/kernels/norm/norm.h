// Batch-norm with optional addition and ReLU, as passes over memory. Training statistics need the whole tensor before
// the first result, so forward takes two passes and backward two; the addition, ReLU and its mask are part of these
// passes.
//
// Sample tensors are 4-D, channels-last and all of one type: float32, bfloat16 or float16. Per-channel values are
// [channels] float32. Results are new tensors. With scale = weight / √(variance + ε) and shift = bias − mean · scale: y
// = scale · x + shift (Ioffe and Szegedy 2015).
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace trainopt::kernels {

// RECORD_FUNCTION labels of the differentiable forms (here and in pool/pool.h), forward and backward.
inline constexpr const char *kNormLabel = "trainopt::fused_batch_norm",
                            *kNormGradientLabel = "trainopt::fused_batch_norm_backward";

/// References to tensors owned elsewhere, each [channels] float32 except `batches`.
struct NormParameters {
  const at::Tensor &weight, &bias;
  const at::Tensor &running_mean, &running_var;  ///< updated by `momentum` with every batch
  const at::Tensor& batches;                     ///< 0-dim int64: number of batches so far
  double momentum, epsilon;
};

/// One batch's statistics, per channel.
struct Statistics {
  at::Tensor mean, inverse;  ///< inverse = 1 / √(variance + ε), with the biased variance
  at::Tensor scale, shift;
};
/// Gradients of the parameters, and what x's gradient takes: scale · g + of_x · x + rest, because mean and variance
/// depend on x too.
struct Coefficients {
  at::Tensor of_bias, of_weight;
  at::Tensor of_x, rest;
};

/// In every implementation, sums do not depend on the number of threads.
class NormKernels {
 public:
  virtual ~NormKernels() = default;

  /// One pass over x. Moves the running statistics towards this batch's, with the unbiased variance as in torch, and
  /// increments the number of batches.
  virtual Statistics statistics(const at::Tensor& x, const NormParameters& norm) const = 0;
  /// scale · x + shift, plus `residual` if defined, through ReLU if `relu`.
  virtual at::Tensor apply(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift,
                           const at::Tensor& residual, bool relu) const = 0;

  // Backward; g is the gradient of scale · x + shift.
  /// g = gradient.
  virtual Coefficients coefficients(const at::Tensor& gradient, const at::Tensor& x, const Statistics& by) const = 0;
  /// g = gradient where scale · x + shift > 0: the mask is recomputed, which is cheaper than reading it.
  virtual Coefficients coefficients_through_relu(const at::Tensor& gradient, const at::Tensor& x,
                                                 const Statistics& by) const = 0;
  /// g = gradient where y > 0, written to `g`, which is also the gradient of the residual. `g` may be the same variable
  /// as `gradient`.
  virtual Coefficients coefficients_through_output(const at::Tensor& gradient, const at::Tensor& y, const at::Tensor& x,
                                                   const Statistics& by, at::Tensor& g) const = 0;
  /// scale · g + of_x · x + rest
  virtual at::Tensor input_gradient(const at::Tensor& g, const at::Tensor& x, const Statistics& by,
                                    const Coefficients& coefficients) const = 0;
  /// input_gradient() with g as in coefficients_through_relu().
  virtual at::Tensor input_gradient_through_relu(const at::Tensor& gradient, const at::Tensor& x, const Statistics& by,
                                                 const Coefficients& coefficients) const = 0;
};

// For implementations that compute the sums of a pass first.

/// scale and shift for values with this mean and biased variance; changes nothing.
Statistics statistics_of(const NormParameters& norm, const at::Tensor& mean, const at::Tensor& variance);
/// The result of statistics() from the mean and biased variance of `count` values per channel.
Statistics statistics_of_batch(const NormParameters& norm, const at::Tensor& mean, const at::Tensor& variance,
                               int64_t count);
/// The result of coefficients() from Σ g and Σ g · (x − mean) over `count` values per channel.
Coefficients coefficients_of(const at::Tensor& gradient_sum, const at::Tensor& product_sum, const Statistics& by,
                             int64_t count);

/// Plain libtorch operations in float32: the reference for the other implementations.
const NormKernels& reference_norm_kernels();
/// Distributes rows to a few threads. Uses the widest vectors of this CPU.
const NormKernels& cpu_norm_kernels();
/// One for each vector width of this CPU, the widest last. `always_stream`: small results bypass the caches too.
std::vector<const NormKernels*> all_cpu_norm_kernels(bool always_stream = false);
/// For GPUs, on the device's current stream; nullptr without libtrainopt_cuda.so. Touches no GPU before it is used.
const NormKernels* cuda_norm_kernels();

// Batch-norm in training with optional addition and ReLU, differentiable with respect to input, weight, bias and
// residual. Double backward is unsupported.

/// Normalises by the statistics of the batch and updates the running statistics. Converts inputs that are not
/// channels-last. `norm` is used only during the call; `kernels` must outlive the graph.
at::Tensor normalize(const at::Tensor& input, const NormParameters& norm, const std::optional<at::Tensor>& residual,
                     bool relu, const NormKernels& kernels);

}  // namespace trainopt::kernels
