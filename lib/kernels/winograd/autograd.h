// Winograd's convolution, differentiable by input and weight. Backward is not differentiable.
#pragma once

#include "kernels/winograd/winograd.h"

namespace trainopt::kernels::winograd {

/// convolution(). Computes the gradients that are needed and no others.
at::Tensor differentiable_convolution(const at::Tensor& input, const at::Tensor& weight);

}  // namespace trainopt::kernels::winograd
