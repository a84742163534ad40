// Bias and GELU, differentiable with respect to both inputs. Double backward is unsupported.
#pragma once

#include "kernels/gelu/gelu.h"

namespace trainopt::kernels {

/// GeluKernels::forward(). An x that is not contiguous is copied. `kernels` must outlive the graph.
at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias, Gelu form, const GeluKernels& kernels);

}  // namespace trainopt::kernels
