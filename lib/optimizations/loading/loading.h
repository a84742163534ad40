// The loader's switches: threads beside the training thread, page-locked buffers, and copies on a stream of their own.
#pragma once

#include <cstdint>

namespace trainopt {
struct Plan;
struct Outcome;
}

namespace trainopt::loading {

Outcome workers(Plan& plan, int64_t wanted);   ///< `wanted` ≥ 1 threads
Outcome persistent_workers(Plan& plan);
Outcome pin_memory(Plan& plan);
Outcome non_blocking(Plan& plan);

}  // namespace trainopt::loading
