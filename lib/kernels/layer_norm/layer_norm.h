// Layer norm with the residual addition before it, as one pass over memory each way.
//
// Tensors are rows of `width` values: [..., width], contiguous, float32, bfloat16 or float16. Per row, with the
// residual x, the branch b and the biased variance (Ba, Kiros and Hinton 2016):
//   sum = x + b, in the type that both promote to
//   normalized = (sum − mean) · rstd · weight + bias, with rstd = 1 / √(variance + ε)
// All is computed in float32, from the rounded sum, and every result is rounded once. With the gradients g of
// `normalized` and h of `sum`, n = (sum − mean) · rstd and the means over a row:
//   gradient of x and b = h + rstd · (g · weight − mean(g · weight) − n · mean(g · weight · n))
//   gradient of weight = Σ g · n, of bias = Σ g, over all rows
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace trainopt::kernels {

// RECORD_FUNCTION labels of the differentiable forms, forward and backward.
inline constexpr const char *kLayerNormLabel = "trainopt::fused_layer_norm",
                            *kLayerNormGradientLabel = "trainopt::fused_layer_norm_backward";

/// References to tensors owned elsewhere, each [width] float32.
struct LayerNormParameters {
  const at::Tensor &weight, &bias;
  double epsilon;
};

/// Each row's statistics: [rows] float32.
struct RowStatistics {
  at::Tensor mean, rstd;
};

struct LayerNormResult {
  at::Tensor sum;  ///< the residual itself if there is no branch
  at::Tensor normalized;
  RowStatistics by;
};

struct LayerNormGradients {
  /// Each has its input's type. Both are one tensor if the types are equal; without a branch, `of_branch` is undefined.
  at::Tensor of_residual, of_branch;
  at::Tensor of_weight, of_bias;  ///< [width] float32
};

/// In every implementation, sums do not depend on the number of threads.
class LayerNormKernels {
 public:
  virtual ~LayerNormKernels() = default;

  /// `branch` has the residual's shape, or is undefined. `type`: of `normalized`.
  virtual LayerNormResult forward(const at::Tensor& residual, const at::Tensor& branch, const LayerNormParameters& norm,
                                  at::ScalarType type) const = 0;

  struct Upstream {
    const at::Tensor& of_normalized;
    const at::Tensor& of_sum;  ///< has the sum's type; undefined if the sum is not used elsewhere
  };
  /// `sum` and `by` are forward()'s. `branch`: its type, if there was one.
  virtual LayerNormGradients backward(const Upstream& gradients, const at::Tensor& sum, const RowStatistics& by,
                                      const at::Tensor& weight, at::ScalarType residual,
                                      std::optional<at::ScalarType> branch) const = 0;
};

/// Plain libtorch operations in float32: the reference for the other implementations.
const LayerNormKernels& reference_layer_norm_kernels();
/// Distributes rows to a few threads. Uses the widest vectors of this CPU.
const LayerNormKernels& cpu_layer_norm_kernels();
/// One for each vector width of this CPU, the widest last.
std::vector<const LayerNormKernels*> all_cpu_layer_norm_kernels();
/// For GPUs, on the device's current stream; nullptr without libtrainopt_cuda.so. Touches no GPU before it is used.
const LayerNormKernels* cuda_layer_norm_kernels();

// Layer norm, differentiable with respect to its inputs, weight and bias. Double backward is unsupported.

struct AddedAndNormalized {
  at::Tensor sum, normalized;
};

/// residual + branch, and its layer norm of the given type. Inputs that are not contiguous are copied. `kernels` must
/// outlive the graph.
AddedAndNormalized add_layer_norm(const at::Tensor& residual, const at::Tensor& branch, const LayerNormParameters& norm,
                                  at::ScalarType type, const LayerNormKernels& kernels);
/// add_layer_norm() without a branch.
at::Tensor layer_norm(const at::Tensor& input, const LayerNormParameters& norm, at::ScalarType type,
                      const LayerNormKernels& kernels);

}  // namespace trainopt::kernels
