// float32 convolutions and matrix products with inputs rounded to TF32 (10 bits of mantissa) on NVIDIA GPUs from sm_80.
#pragma once

#include "optimizations/info.h"

namespace trainopt {
struct Plan;
struct Outcome;
}  // namespace trainopt

namespace trainopt::tf32 {

inline constexpr Info kInfo{"tf32", Exactness::same_math, 1e-2};

Outcome apply(Plan& plan);

}  // namespace trainopt::tf32
