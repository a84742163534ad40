#include "optimizations/fused_kernels/cuda/head_passes.h"
#include "optimizations/fused_kernels/cuda/passes.h"

namespace trainopt::fused_kernels::cuda {

const Passes* cuda_passes() { return nullptr; }
const HeadPasses* cuda_head_passes() { return nullptr; }

}  // namespace trainopt::fused_kernels::cuda
