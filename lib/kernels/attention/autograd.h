// Attention, differentiable with respect to queries, keys and values. Double backward is unsupported.
#pragma once

#include "kernels/attention/attention.h"

namespace trainopt::kernels {

/// Inputs whose heads are not contiguous are copied. `kernels` must outlive the graph.
at::Tensor attention(const AttentionInputs& inputs, const AttentionKernels& kernels);

}  // namespace trainopt::kernels
