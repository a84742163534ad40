// Weights and activations stored as NHWC, the order that oneDNN's and tensor-core convolution kernels prefer.
#pragma once

#include "optimizations/info.h"

namespace trainopt {
struct Plan;
struct Outcome;
}  // namespace trainopt

namespace trainopt::channels_last {

inline constexpr Info kInfo{"channels_last", Exactness::same_math, 1e-3};

Outcome apply(Plan& plan);

}  // namespace trainopt::channels_last
