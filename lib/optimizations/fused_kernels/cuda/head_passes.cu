#include "kernels/on_device.cuh"
#include "optimizations/fused_kernels/cuda/head_passes.cuh"

namespace trainopt::fused_kernels::cuda {

const HeadPasses* cuda_head_passes() {
  static const LaunchedHeadPasses passes;
  return &passes;
}

}  // namespace trainopt::fused_kernels::cuda
