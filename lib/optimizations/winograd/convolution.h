// A network's convolutions and their gradients by Winograd's minimal filtering.
#pragma once

#include "model/operations.h"
#include "optimizations/winograd/winograd.h"

#include <memory>

namespace trainopt::winograd {

/// Takes 3×3 convolutions with stride 1 and padding 1 on the CPU where that pays, and leaves all others to libtorch.
/// Converts inputs that are not channels-last.
std::unique_ptr<ConvolutionOperations> make_convolutions(const Config& config);

}  // namespace trainopt::winograd
