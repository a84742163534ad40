// The loader's switches: batch size, loader threads, page-locked buffers, and copies on a separate stream.
#pragma once

#include "optimizations/info.h"

#include <cstdint>
#include <optional>

namespace trainopt {
struct Plan;
struct Outcome;
}  // namespace trainopt

namespace trainopt::loading {

inline constexpr Info kBatchSize{
    "batch_size",         Exactness::new_math, /*tolerance=*/0,    /*in_every_recipe=*/true,
    /*other_draws=*/true, /*off=*/"null",      /*of_the_job=*/true},
    kWorkers{"num_workers", Exactness::same_bits}, kPrefetchFactor{"prefetch_factor", Exactness::same_bits},
    kPersistentWorkers{"persistent_workers", Exactness::same_bits}, kPinMemory{"pin_memory", Exactness::same_bits},
    kNonBlocking{"non_blocking", Exactness::same_bits};

/// `wanted`: at least 1; null: to be measured when the run starts (recipe/choose_workers.h), one per core until then.
Outcome workers(Plan& plan, std::optional<int64_t> wanted);
Outcome persistent_workers(Plan& plan);
Outcome prefetch_factor(Plan& plan, int64_t wanted);
Outcome batch_size(Plan& plan, int64_t wanted);  ///< already in the plan; adds only the receipt
Outcome pin_memory(Plan& plan);
Outcome non_blocking(Plan& plan);

}  // namespace trainopt::loading
