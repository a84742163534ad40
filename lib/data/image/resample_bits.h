// The number format of the resampling weights; shared with the kernels.
#pragma once

namespace trainopt {

/// Weights are fixed-point. With 22 fraction bits, products with 8-bit pixels fit in an int32.
inline constexpr int kResampleBits = 22;

}  // namespace trainopt
