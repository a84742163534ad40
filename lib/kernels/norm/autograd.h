// Batch-norm in training, with what follows it, differentiable by input, weight, bias and residual. Backward is not
// differentiable.
#pragma once

#include "kernels/norm/norm.h"

#include <optional>

namespace trainopt::kernels {

/// The batch's own statistics normalise it, and the running ones move. Inputs that are not channels-last are converted.
/// `norm` is used during the call alone; `kernels` must outlive the graph.
at::Tensor normalize(const at::Tensor& input, const NormParameters& norm, const std::optional<at::Tensor>& residual,
                     bool relu, const NormKernels& kernels);

}  // namespace trainopt::kernels
