// The numbers of both forms of GELU, for all processors.
#pragma once

namespace trainopt::kernels::gelu {

/// Φ(−a) = e^(−a²/2) · t · (kTail0 + kTail1 t + … + kTail6 t⁶) for a ≥ 0, t = 1 / (1 + kScale · a): Hastings 1955.
/// The polynomial is our own fit (Lawson's algorithm), for the relative error times 1 / (1 + (a / 4)⁴), which is below
/// 2.3e-7. Beyond kLargest, Φ(−a) is 0 in float32, and so is the exponential.
inline constexpr float kScale = 0.26f, kLargest = 16;
inline constexpr float kTail0 = 0.10350696f, kTail1 = 0.10743538f, kTail2 = 0.07162243f, kTail3 = 0.17133176f,
                       kTail4 = -0.11359164f, kTail5 = 0.2341029f, kTail6 = -0.07440792f;
/// A fit with fewer terms, for 16-bit results: its error is below 7.9e-6.
inline constexpr float kShortScale = 0.36f;
inline constexpr float kShortTail0 = 0.141944677f, kShortTail1 = 0.162250653f, kShortTail2 = 0.0458232537f,
                       kShortTail3 = 0.245973349f, kShortTail4 = -0.0959958807f;
/// 1 / √(2π), the largest value of the normal density
inline constexpr float kDensity = 0.398942280f;

/// The argument of tanh, times two: kLinear · z + kCubic · z³.
inline constexpr float kLinear = 1.59576912f, kCubic = 0.0713548163f;

inline constexpr float kLog2OfE = 1.44269504f;
/// 2^−kLargestPower is 0 in float32.
inline constexpr float kLargestPower = 200;

}  // namespace trainopt::kernels::gelu
