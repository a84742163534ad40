// The blocks' composite operations on fused kernels, with their gradients.
#pragma once

#include "kernels/head/head.h"
#include "kernels/norm/norm.h"
#include "kernels/pool/pool.h"
#include "model/batch_norm_operations.h"
#include "model/head_operations.h"

#include <memory>

namespace trainopt::fused_kernels {

/// Of one device; they must outlive all who use them.
struct BlockKernels {
  const kernels::NormKernels& norm;
  const kernels::PoolKernels& pool;
  const kernels::HeadKernels& head;
};

/// Inputs that are not channels-last are converted. In evaluation batch-norm is a scale and a shift known before, each
/// operation one pass, and gradients must be off.
std::unique_ptr<BatchNormOperations> make_fused_batch_norm(const BlockKernels& kernels);
/// The same for the average pool of the head.
std::unique_ptr<HeadOperations> make_fused_head(const BlockKernels& kernels);

}  // namespace trainopt::fused_kernels
