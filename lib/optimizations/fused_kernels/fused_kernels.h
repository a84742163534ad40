// Batch-norm, addition, ReLU, the stem's max-pool, the average pool and the loss in as few passes over memory as they
// can have.
#pragma once

namespace trainopt {
struct Plan;
struct Outcome;
}  // namespace trainopt

namespace trainopt::fused_kernels {

Outcome apply(Plan& plan);

}  // namespace trainopt::fused_kernels
