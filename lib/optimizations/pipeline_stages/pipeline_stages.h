// Pipeline parallelism: each rank holds some consecutive units of the model, and micro-batches pass through the ranks
// (Huang et al. 2019, GPipe; Narayanan et al. 2019, 1F1B).
#pragma once

#include "comm/config.h"
#include "model/builder.h"
#include "optimizations/info.h"
#include "train/receipt.h"

#include <cstdint>
#include <vector>

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

// Which units each stage of a pipeline holds.

/// Divides units with these costs among `stages` stages of at least one unit each, so that the most expensive stage
/// costs as little as possible. 1 ≤ stages ≤ costs.size().
std::vector<UnitRange> balanced_stages(const std::vector<double>& costs, int64_t stages);

/// The share of its time that a stage waits if all stages take equally long: (p − 1) ÷ (m + p − 1) for p stages and m
/// micro-batches, with either schedule (Narayanan et al. 2021, §2.2).
constexpr double idle_share(int64_t stages, int64_t micro_batches) {
  return static_cast<double>(stages - 1) / static_cast<double>(micro_batches + stages - 1);
}

}  // namespace trainopt::pipeline_stages
