// The convolutions of a network by Winograd's filtering, with their gradients.
#pragma once

#include "model/convolution_operations.h"

#include <memory>

namespace trainopt::winograd {

/// A 3×3 convolution with stride 1 and padding 1, of autocast's type where autocast is on. Inputs that are not
/// channels-last are converted. Double backward is unsupported.
at::Tensor differentiable_convolution(const at::Tensor& input, const at::Tensor& weight);

/// Takes such convolutions on the CPU where that pays; the others are libtorch's.
std::unique_ptr<ConvolutionOperations> make_convolutions();

}  // namespace trainopt::winograd
