// The average pool and the loss, differentiable by images and by logits. Backward is not differentiable.
#pragma once

#include "kernels/head/head.h"

namespace trainopt::kernels {

/// HeadKernels::mean(). Inputs that are not channels-last are converted. `kernels` must outlive the graph.
at::Tensor average_pool(const at::Tensor& input, const HeadKernels& kernels);

/// The mean over the batch, with a gradient by `logits`: once only (libtorch refuses another backward). `kernels` must
/// outlive the graph.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target, double smoothing,
                         const HeadKernels& kernels);

}  // namespace trainopt::kernels
