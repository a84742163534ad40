// Convolutions on 16-bit tensors for CPUs without 16-bit instructions.
#pragma once

#include "model/operations.h"

#include <memory>

namespace trainopt::amp {

/// Labels posted with the input, as train/step_trace.h requires for convolutions.
inline constexpr const char *kConvolutionLabel = "trainopt::float32_convolution",
                            *kConvolutionGradientLabel = "trainopt::float32_convolution_backward";

/// Whether libtorch passes convolutions of this type (bfloat16, float16) to oneDNN on this CPU. If not, its own loops
/// take at least ten times as long as float32.
bool cpu_convolves(at::ScalarType type);

/// Convolutions under autocast: inputs and outputs have autocast's type, products and sums are float32. Without
/// autocast, and for convolutions that `inner` takes, calls `inner`.
std::unique_ptr<ConvolutionOperations> make_float32_convolutions(std::unique_ptr<ConvolutionOperations> inner);

}  // namespace trainopt::amp
