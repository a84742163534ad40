// Convolutions of 16-bit numbers for CPUs without instructions for them.
#pragma once

#include "model/convolution_operations.h"

#include <memory>

namespace trainopt::amp {

/// Posted with the input, as train/step_trace.h asks of convolutions.
inline constexpr const char *kConvolutionLabel = "trainopt::float32_convolution",
                            *kConvolutionGradientLabel = "trainopt::float32_convolution_backward";

/// Whether libtorch gives convolutions of this type (bfloat16, float16) to oneDNN on this CPU. Where it does not, its
/// own loops take ten or more times as long as float32.
bool cpu_convolves(at::ScalarType type);

/// Convolutions under autocast: images of its type in and out, products and sums as float32. What `inner` takes, and
/// what autocast does not change, is left to it.
std::unique_ptr<ConvolutionOperations> make_float32_convolutions(std::unique_ptr<ConvolutionOperations> inner);

}  // namespace trainopt::amp
