// The composite operations of network blocks and their gradients, on fused kernels.
#pragma once

#include "kernels/head/head.h"
#include "kernels/norm/norm.h"
#include "kernels/pool/pool.h"
#include "model/operations.h"

#include <memory>

namespace trainopt::fused_kernels {

/// The kernels of one device. They must outlive their users.
struct BlockKernels {
  const kernels::NormKernels& norm;
  const kernels::PoolKernels& pool;
  const kernels::HeadKernels& head;
};

/// Inputs that are not channels-last are converted. In evaluation, batch-norm is a precomputed scale and shift, each
/// operation is one pass, and gradients must be disabled.
std::unique_ptr<BatchNormOperations> make_fused_batch_norm(const BlockKernels& kernels);
/// The same for the head's average pool.
std::unique_ptr<HeadOperations> make_fused_head(const BlockKernels& kernels);

}  // namespace trainopt::fused_kernels
