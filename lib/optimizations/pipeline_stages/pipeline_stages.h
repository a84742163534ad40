// Pipeline parallelism: each rank holds some consecutive units of the model, and micro-batches pass through the ranks
// (Huang et al. 2019, GPipe; Narayanan et al. 2019, 1F1B).
#pragma once

#include "comm/config.h"
#include "optimizations/info.h"
#include "train/receipt.h"

namespace trainopt {
struct Plan;
}

namespace trainopt::pipeline_stages {

inline constexpr Info kInfo{.name = "parallel.pipeline.stages",
                            .exactness = Exactness::same_math,
                            .tolerance = 1e-4,
                            .other_draws = true,
                            .off = "1"};

/// Throws UserError if the model has fewer units than stages.
Outcome apply(Plan& plan, const PipelineConfig& config);

}  // namespace trainopt::pipeline_stages
