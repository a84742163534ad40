// The blocks' composite operations on fused kernels, with their gradients.
#pragma once

#include "model/block_operations.h"
#include "optimizations/fused_kernels/norm_kernels.h"

#include <memory>

namespace trainopt::fused_kernels {

/// Names under which a step's observer sees them, once each time they run.
inline constexpr const char* kForwardLabel = "trainopt::fused_batch_norm";
inline constexpr const char* kBackwardLabel = "trainopt::fused_batch_norm_backward";

/// Inputs that are not channels-last are converted. In evaluation batch-norm is a scale and a shift known before, and each operation one pass.
std::shared_ptr<const BlockOperations> make_fused_block_operations(const NormKernels& kernels);

}  // namespace trainopt::fused_kernels
