// The loader's switches: how much at once, threads beside the training thread, page-locked buffers, and copies on a
// stream of their own.
#pragma once

#include <cstdint>

namespace trainopt {
struct Plan;
struct Outcome;
}  // namespace trainopt

namespace trainopt::loading {

Outcome workers(Plan& plan, int64_t wanted);  ///< `wanted` ≥ 1 threads
Outcome persistent_workers(Plan& plan);
Outcome prefetch_factor(Plan& plan, int64_t wanted);
Outcome batch_size(Plan& plan, int64_t wanted);  ///< already in the plan: only its receipt
Outcome pin_memory(Plan& plan);
Outcome non_blocking(Plan& plan);

}  // namespace trainopt::loading
