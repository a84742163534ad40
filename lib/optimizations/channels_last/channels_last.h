// Weights and activations stored as NHWC, the order that convolution kernels of oneDNN and tensor cores want.
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
