// The convolutions of a network by Winograd's filtering, with their gradients.
#pragma once

#include "model/layers.h"

#include <memory>

namespace trainopt::winograd {

/// Posted with the input, as train/step_trace.h asks of convolutions.
inline constexpr const char *kConvolutionLabel = "trainopt::winograd_convolution",
                            *kConvolutionGradientLabel = "trainopt::winograd_convolution_backward";

/// Takes convolutions of 3×3 with stride 1 and padding 1 on the CPU where that pays. Inputs that are not channels-last
/// are converted.
std::shared_ptr<const ConvolutionKernel> make_convolutions();

}  // namespace trainopt::winograd
