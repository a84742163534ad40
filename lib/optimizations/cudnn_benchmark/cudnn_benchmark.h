// cuDNN times its algorithms for each new shape and uses the fastest.
#pragma once

#include "optimizations/info.h"

namespace trainopt {
struct Plan;
struct Outcome;
struct OptionChecks;
}  // namespace trainopt

namespace trainopt::cudnn_benchmark {

inline constexpr Info kInfo{"cudnn_benchmark", Exactness::same_math, 1e-3};

void check(OptionChecks& checks);
Outcome apply(Plan& plan);

}  // namespace trainopt::cudnn_benchmark
