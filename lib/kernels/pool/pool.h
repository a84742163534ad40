// The stem's max-pool after batch-norm and ReLU, as passes over memory: 3×3 with stride 2 and padding 1 of ReLU(scale ·
// x + shift), and its part of batch-norm's backward. Tensors are as in norm/norm.h; pooled ones are [n, channels,
// (height + 1) / 2, (width + 1) / 2]. Results are new tensors.
#pragma once

#include "kernels/norm/norm.h"

namespace trainopt::kernels {

struct Pooled {
  at::Tensor values;
  at::Tensor positions;  ///< uint8: index of the value in the 3×3 window, row by row; 9: none, all were ≤ 0
  at::Tensor chosen;     ///< x at that position; unspecified where the position is 9
};

class PoolKernels {
 public:
  virtual ~PoolKernels() = default;

  /// Chooses the first of equal values of x, and any of values that only rounding makes equal. NaN beats all values;
  /// its position may be any.
  virtual Pooled pool(const at::Tensor& x, const at::Tensor& scale, const at::Tensor& shift) const = 0;
  /// NormKernels::coefficients() with g = gradient at the positions that the values came from, for x with `count`
  /// values per channel. Does not read `pooled.values`.
  virtual Coefficients coefficients(const at::Tensor& gradient, const Pooled& pooled, const Statistics& by,
                                    int64_t count) const = 0;
  /// NormKernels::input_gradient() with the same g.
  virtual at::Tensor input_gradient(const at::Tensor& gradient, const at::Tensor& positions, const at::Tensor& x,
                                    const Statistics& by, const Coefficients& coefficients) const = 0;
};

/// Plain libtorch operations in float32: the reference for the other implementations.
const PoolKernels& reference_pool_kernels();
/// Distributes rows to a few threads. Uses the widest vectors of this CPU.
const PoolKernels& cpu_pool_kernels();
/// One for each vector width of this CPU, the widest last. `always_stream`: small results bypass the caches too.
std::vector<const PoolKernels*> all_cpu_pool_kernels(bool always_stream = false);
/// For GPUs, on the device's current stream; nullptr without libtrainopt_cuda.so. Touches no GPU before it is used.
const PoolKernels* cuda_pool_kernels();

// Batch-norm in training followed by ReLU and the stem's max-pool, differentiable with respect to input, weight and
// bias. Double backward is unsupported.

/// Like normalize() of norm/norm.h. Both kernels must outlive the graph.
at::Tensor normalize_and_pool(const at::Tensor& input, const NormParameters& norm, const NormKernels& norms,
                              const PoolKernels& pools);

}  // namespace trainopt::kernels
