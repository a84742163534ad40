// The format of resampling's weights, for kernels too.
#pragma once

namespace trainopt {

/// Weights are fixed point: 22 fraction bits leave room for 8 bits of pixel in an int32.
inline constexpr int kResampleBits = 22;

}  // namespace trainopt
