// The blocks' composite operations on fused kernels, with their gradients.
#pragma once

#include "model/batch_norm_operations.h"
#include "model/head_operations.h"
#include "optimizations/fused_kernels/head_kernels.h"
#include "optimizations/fused_kernels/norm_kernels.h"

#include <memory>

namespace trainopt::fused_kernels {

/// Inputs that are not channels-last are converted. In evaluation batch-norm is a scale and a shift known before, each
/// operation one pass, and gradients must be off.
std::unique_ptr<BatchNormOperations> make_fused_batch_norm(const NormKernels& kernels);
/// The same for the average pool of the head.
std::unique_ptr<HeadOperations> make_fused_head(const HeadKernels& kernels);

}  // namespace trainopt::fused_kernels
