// The average pool and the loss, differentiable with respect to images and logits. Double backward is unsupported.
#pragma once

#include "kernels/head/head.h"

namespace trainopt::kernels {

/// HeadKernels::mean(). Converts inputs that are not channels-last. `kernels` must outlive the graph.
at::Tensor average_pool(const at::Tensor& input, const HeadKernels& kernels);

/// The mean loss over the batch, differentiable with respect to `logits` once: libtorch refuses a second backward.
/// `kernels` must outlive the graph.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target, double smoothing,
                         const HeadKernels& kernels);

}  // namespace trainopt::kernels
