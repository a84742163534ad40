// Convolutions of 16-bit numbers for CPUs without instructions for them.
#pragma once

#include "model/layers.h"

namespace trainopt::amp {

/// Whether libtorch's convolutions of this type run at full speed here. Where they do not, it emulates them, which takes ten times as long as float32.
bool cpu_convolves(at::ScalarType type);

/// Images of autocast's type in and out; weights, products and sums as float32. `other`, which may be null, is asked first.
std::shared_ptr<const ConvolutionKernel> make_float32_convolutions(std::shared_ptr<const ConvolutionKernel> other);

}  // namespace trainopt::amp
