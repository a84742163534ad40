// The step is recorded once and replayed: two launches instead of one for each kernel.
#pragma once

#include "optimizations/info.h"

namespace trainopt {
struct Plan;
struct Outcome;
struct OptionChecks;
}  // namespace trainopt

namespace trainopt::cuda_graph {

inline constexpr Info kInfo{"cuda_graph", Exactness::same_bits};

void check(OptionChecks& checks);
/// After all others: what they put into the plan is what is recorded.
Outcome apply(Plan& plan);

}  // namespace trainopt::cuda_graph
