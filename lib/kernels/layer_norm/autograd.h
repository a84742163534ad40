// Layer norm, differentiable with respect to its inputs, weight and bias. Double backward is unsupported.
#pragma once

#include "kernels/layer_norm/layer_norm.h"

namespace trainopt::kernels {

struct AddedAndNormalized {
  at::Tensor sum, normalized;
};

/// residual + branch, and its layer norm of the given type. Inputs that are not contiguous are copied. `kernels` must
/// outlive the graph.
AddedAndNormalized add_layer_norm(const at::Tensor& residual, const at::Tensor& branch, const LayerNormParameters& norm,
                                  at::ScalarType type, const LayerNormKernels& kernels);
/// The same without a branch.
at::Tensor layer_norm(const at::Tensor& input, const LayerNormParameters& norm, at::ScalarType type,
                      const LayerNormKernels& kernels);

}  // namespace trainopt::kernels
