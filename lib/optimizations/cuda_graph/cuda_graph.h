// The step is recorded once and replayed: two launches instead of one for each kernel.
#pragma once

namespace trainopt {
struct Plan;
struct Outcome;
}  // namespace trainopt

namespace trainopt::cuda_graph {

/// After all others: what they put into the plan is what is recorded.
Outcome apply(Plan& plan);

}  // namespace trainopt::cuda_graph
