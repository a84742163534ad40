// The step is recorded once and replayed: two launches instead of one per kernel.
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
/// Apply it last: it records what all other optimizations put into the plan.
Outcome apply(Plan& plan);

}  // namespace trainopt::cuda_graph
