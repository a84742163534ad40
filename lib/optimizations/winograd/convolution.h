// The convolutions of a network by Winograd's filtering, with their gradients.
#pragma once

#include "model/convolution_operations.h"

#include <memory>

namespace trainopt::winograd {

/// Takes convolutions of 3×3 with stride 1 and padding 1 on the CPU where that pays; inputs that are not channels-last
/// are converted. The others are libtorch's.
std::unique_ptr<ConvolutionOperations> make_convolutions();

}  // namespace trainopt::winograd
