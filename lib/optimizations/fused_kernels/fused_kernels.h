// Batch-norm with addition, ReLU and the stem's max-pool, the average pool and the loss, fused to as few passes over
// memory as possible.
#pragma once

#include "optimizations/info.h"

namespace trainopt {
struct Plan;
struct Outcome;
struct OptionChecks;
}  // namespace trainopt

namespace trainopt::fused_kernels {

inline constexpr Info kInfo{"fused_kernels", Exactness::same_math, 1e-3};

void check(OptionChecks& checks);
Outcome apply(Plan& plan);

}  // namespace trainopt::fused_kernels
