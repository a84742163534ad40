// Batch-norm in training followed by ReLU and the stem's max-pool, differentiable with respect to input, weight and
// bias. Double backward is unsupported.
#pragma once

#include "kernels/pool/pool.h"

namespace trainopt::kernels {

/// Like normalize() (norm/autograd.h). Both kernels must outlive the graph.
at::Tensor normalize_and_pool(const at::Tensor& input, const NormParameters& norm, const NormKernels& norms,
                              const PoolKernels& pools);

}  // namespace trainopt::kernels
