// Winograd's convolution, differentiable with respect to input and weight. Double backward is unsupported.
#pragma once

#include "kernels/winograd/winograd.h"

namespace trainopt::kernels::winograd {

/// Like convolution(). Backward computes only the gradients that are needed.
at::Tensor differentiable_convolution(const at::Tensor& input, const at::Tensor& weight,
                                      Products products = Products::full);

}  // namespace trainopt::kernels::winograd
