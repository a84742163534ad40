// Kernels for meta tensors, which have shapes and no memory: they allocate what the launched kernels allocate and
// compute nothing. For forecasts of a step's memory.
#pragma once

#include "kernels/gelu/gelu.h"
#include "kernels/head/head.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/linear_cross_entropy/linear_cross_entropy.h"
#include "kernels/norm/norm.h"
#include "kernels/pool/pool.h"
#include "kernels/update/update.h"

namespace trainopt::kernels {

const NormKernels& meta_norm_kernels();
const PoolKernels& meta_pool_kernels();
const HeadKernels& meta_head_kernels();
const LinearCrossEntropyKernels& meta_linear_cross_entropy_kernels();
const LayerNormKernels& meta_layer_norm_kernels();
const GeluKernels& meta_gelu_kernels();

namespace update {
const UpdateKernels& meta_kernels();
}

}  // namespace trainopt::kernels
