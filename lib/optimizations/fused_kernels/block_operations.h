// The blocks' composite operations on fused kernels, with their gradients.
#pragma once

#include "model/block_operations.h"
#include "optimizations/fused_kernels/head_kernels.h"
#include "optimizations/fused_kernels/norm_kernels.h"

#include <memory>

namespace trainopt::fused_kernels {

/// Inputs that are not channels-last are converted. In evaluation batch-norm is a scale and a shift known before, each
/// operation one pass, and gradients must be off.
std::shared_ptr<const BlockOperations> make_fused_block_operations(const NormKernels& kernels,
                                                                   const HeadKernels& head_kernels);

}  // namespace trainopt::fused_kernels
