// The format of a resize's weights.
#pragma once

namespace trainopt::kernels {

/// Weights are fixed-point numbers: 22 fraction bits leave room for 8 bits of pixel in an int32.
inline constexpr int kResizeBits = 22;

}  // namespace trainopt::kernels
