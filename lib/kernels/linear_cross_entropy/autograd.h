// The loss of a language model's last layer, differentiable with respect to hidden states and weight.
#pragma once

#include "kernels/linear_cross_entropy/linear_cross_entropy.h"

namespace trainopt::kernels {

/// The mean loss over the rows that count, computed with hidden states and weight of type `type`, to which others are
/// converted. Gradients are computed with the loss, if they are enabled and an input requires one; each is rounded
/// once, to its input's own type. Backward multiplies them by the upstream gradient in place, so libtorch refuses a
/// second one. Inputs that are not contiguous are copied. `kernels` must outlive the graph.
at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& target,
                                at::ScalarType type, const LinearCrossEntropyKernels& kernels);

}  // namespace trainopt::kernels
