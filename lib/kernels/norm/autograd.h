// Batch-norm in training with optional addition and ReLU, differentiable with respect to input, weight, bias and
// residual. Double backward is unsupported.
#pragma once

#include "kernels/norm/norm.h"

#include <optional>

namespace trainopt::kernels {

/// Normalises by the statistics of the batch and updates the running statistics. Converts inputs that are not
/// channels-last. `norm` is used only during the call; `kernels` must outlive the graph.
at::Tensor normalize(const at::Tensor& input, const NormParameters& norm, const std::optional<at::Tensor>& residual,
                     bool relu, const NormKernels& kernels);

}  // namespace trainopt::kernels
