// Convolutions of 16-bit numbers for CPUs without instructions for them.
#pragma once

#include "model/layers.h"

namespace trainopt::amp {

/// Posted with the input, as train/step_trace.h asks of convolutions.
inline constexpr const char *kConvolutionLabel = "trainopt::float32_convolution",
                            *kConvolutionGradientLabel = "trainopt::float32_convolution_backward";

/// Whether libtorch gives convolutions of this type (bfloat16, float16) to oneDNN on this CPU. Where it does not, its
/// own loops take ten or more times as long as float32.
bool cpu_convolves(at::ScalarType type);

/// Convolutions under autocast: images of its type in and out, products and sums as float32. `other`, which may be
/// null, is asked first.
std::shared_ptr<const ConvolutionKernel> make_float32_convolutions(std::shared_ptr<const ConvolutionKernel> other);

}  // namespace trainopt::amp
