// Batch-norm in training with ReLU and the stem's max-pool behind it, differentiable by input, weight and bias.
// Backward is not differentiable.
#pragma once

#include "kernels/pool/pool.h"

namespace trainopt::kernels {

/// As normalize() (norm/autograd.h); both kernels must outlive the graph.
at::Tensor normalize_and_pool(const at::Tensor& input, const NormParameters& norm, const NormKernels& norms,
                              const PoolKernels& pools);

}  // namespace trainopt::kernels
