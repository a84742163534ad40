// 3×3 convolutions by Winograd's minimal filtering: a quarter of the multiplications, which are what bounds
// convolutions on a CPU.
#pragma once

#include "optimizations/info.h"

namespace trainopt {
struct Plan;
struct Outcome;
}  // namespace trainopt

namespace trainopt::winograd {

inline constexpr Info kInfo{"winograd", Exactness::same_math, 1e-3};

Outcome apply(Plan& plan);

}  // namespace trainopt::winograd
